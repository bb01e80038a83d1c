"""Contains: whether the output contains the text that is looked for.

A plain search for a substring, after what the parameters ignore. An output that is not a text is searched in its
canonical JSON text (RFC 8785). By default the record's references are looked for, any one of them; with ``text`` the
same texts are looked for in every record, and no reference is needed.
"""

from typing import Any, Literal, cast

from pydantic import Field, field_validator

from records.evaluators.contract import NO_OUTPUT, NO_REFERENCE, Evaluator, Judge, Score, pass_or_fail, skipped
from records.evaluators.texts import TextParams, list_reference_texts, read_text
from records.record import Record

MAX_TEXTS = 1_000

EMPTY_REFERENCE = skipped("every reference is an empty text, which any output contains")


class ContainsParams(TextParams):
    """Parameters of contains."""

    text: str | list[str] | None = Field(
        default=None,
        description="What to look for, one text or a list of 1 to 1,000 texts, none of them empty; unset: the record's "
        "references.",
    )
    mode: Literal["any", "all"] = Field(
        default="any", description="Whether one of the texts looked for is enough, or all of them must be there."
    )

    @field_validator("text", mode="before")
    @classmethod
    def is_searchable(cls, text: Any) -> Any:
        """Refuse what is no text, and the empty text, which any output contains."""
        texts: list[Any] = cast("list[Any]", text) if isinstance(text, list) else [text]
        if text is not None and not (
            1 <= len(texts) <= MAX_TEXTS and all(isinstance(item, str) and item for item in texts)
        ):
            message = f"must be a text or a list of 1 to {MAX_TEXTS:,} texts, none of them empty"
            raise ValueError(message)
        return text


def build_judge(params: ContainsParams) -> Judge:
    """Build the judge; texts given as a parameter are folded once."""
    given = [params.text] if isinstance(params.text, str) else params.text
    fixed = None if given is None else [params.fold(text) for text in given]
    decide = all if params.mode == "all" else any

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        searched = fixed
        if searched is None:
            texts = list_reference_texts(record)
            if not texts:
                return NO_REFERENCE
            searched = [folded for folded in map(params.fold, texts) if folded]
            if not searched:
                return EMPTY_REFERENCE
        output = params.fold(read_text(record.output))
        return pass_or_fail(decide(text in output for text in searched))

    return judge


EVALUATOR = Evaluator(
    name="contains",
    version=1,
    kind="pass_fail",
    description="Whether the output contains the reference, or a text given as a parameter.",
    score_meaning="1 when any (or all: mode) of the texts looked for occurs in the output, else 0. Skipped without an "
    "output, and without a reference unless text is given.",
    params=ContainsParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
