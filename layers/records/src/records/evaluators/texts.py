"""How a record's output and references become the texts and values that evaluators compare."""

import unicodedata
from typing import Any, Literal, cast

from pydantic import Field

from records.canonical_json import canonical_json
from records.evaluators.contract import EvaluatorParams
from records.record import Record


class TextParams(EvaluatorParams):
    """Parameters of evaluators that compare texts."""

    ignore_case: bool = Field(
        default=False, description="Compare without regard to case (Unicode case folding: 'Straße' equals 'STRASSE')."
    )
    ignore_whitespace: bool = Field(
        default=False,
        description="Drop white space at both ends and take every run of it in between as one space.",
    )
    unicode_form: Literal["NFC", "NFKC"] | None = Field(
        default=None,
        description="Bring both sides into this Unicode normalization form first; unset: code points are compared as "
        "they are.",
    )

    def fold(self, text: str) -> str:
        """Apply what the parameters ignore."""
        if self.unicode_form is not None:
            text = unicodedata.normalize(self.unicode_form, text)
        if self.ignore_case:
            text = text.casefold()
            if self.unicode_form is not None:
                text = unicodedata.normalize(self.unicode_form, text)
        return " ".join(text.split()) if self.ignore_whitespace else text


def list_references(record: Record) -> list[Any]:
    """Return the values of which any one will do; empty when the record has no reference.

    A list is a choice of references, its nulls left out; to expect a list, put it into a list. Anything else is the one
    reference.
    """
    reference = record.reference
    if isinstance(reference, list):
        return [choice for choice in cast("list[Any]", reference) if choice is not None]
    return [] if reference is None else [reference]


def read_text(value: Any) -> str:
    """Return a text as it is, any other JSON value as its canonical JSON text (RFC 8785)."""
    if isinstance(value, str):
        return value
    return canonical_json(value).decode()


def list_reference_texts(record: Record) -> list[str]:
    """Return the references as texts; see `list_references` and `read_text`."""
    return [read_text(reference) for reference in list_references(record)]
