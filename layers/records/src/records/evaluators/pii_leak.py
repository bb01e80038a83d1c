"""PII leak: whether the output holds secrets or personal data.

Looked for with the patterns of redaction (`records.redaction`), in every text of the output, names of members included,
and in texts that are JSON themselves. What a source's redaction has masked already (`[redacted:…]`) is no leak.
"""

from collections import Counter

from pydantic import Field, model_validator

from records.evaluators.contract import NO_OUTPUT, Evaluator, EvaluatorParams, Judge, Score, pass_or_fail
from records.record import Record
from records.redaction.redactor import Redactor
from records.redaction.rules import PATTERN_NAMES, CustomPattern, PatternName, RedactionRules


class PiiLeakParams(EvaluatorParams):
    """Parameters of pii_leak."""

    patterns: list[PatternName] = Field(
        default_factory=lambda: list(PATTERN_NAMES),
        description="Which of the built-in patterns count as a leak; unset: all of them.",
    )
    custom: list[CustomPattern] = Field(
        max_length=20,
        default_factory=list[CustomPattern],
        description="Further patterns in RE2 syntax, each with a name of its own.",
    )

    @model_validator(mode="after")
    def looks_for_something(self) -> "PiiLeakParams":
        """Refuse parameters that look for nothing, and names that are taken."""
        if not self.patterns and not self.custom:
            message = "patterns and custom are both empty: there would be nothing to look for"
            raise ValueError(message)
        self.as_rules()
        return self

    def as_rules(self) -> RedactionRules:
        """Return the rules that look for these patterns and nothing else."""
        return RedactionRules(drop_fields=[], mask_keys=[], patterns=self.patterns, custom=self.custom)


def build_judge(params: PiiLeakParams) -> Judge:
    """Build the judge; patterns are compiled once."""
    redactor = Redactor(params.as_rules())

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        found: Counter[str] = Counter()
        redactor.redact(record.output, found)
        return pass_or_fail(not found)

    return judge


EVALUATOR = Evaluator(
    name="pii_leak",
    version=1,
    kind="pass_fail",
    description="Whether the output is free of e-mail addresses, phone numbers, payment cards, IBANs, IP addresses, "
    "keys and tokens.",
    score_meaning="1 when nothing was found in the output, 0 when something leaked. Skipped without an output. Texts "
    "that a source's redaction has masked are no leak: the report counts them.",
    params=PiiLeakParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
