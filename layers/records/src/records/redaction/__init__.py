"""Redaction: what must not be stored or evaluated is taken out of every text before anything else sees it."""

from records.redaction.redactor import RedactionError, Redactor
from records.redaction.rules import CustomPattern, RedactionRules

__all__ = ["CustomPattern", "RedactionError", "RedactionRules", "Redactor"]
