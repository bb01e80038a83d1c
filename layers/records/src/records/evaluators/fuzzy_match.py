"""Fuzzy match: how similar output and reference are, character by character.

The normalized indel similarity of rapidfuzz (``fuzz.ratio``): with |a| and |b| characters and a longest common
subsequence of c, it is ``2c / (|a| + |b|)``; 1 for equal texts, 0 without a common character. The ``token`` methods
compare the sorted words, or the sets of words. Of a list of references the most similar one counts. A value that is not
a text takes part as its canonical JSON text (RFC 8785).
"""

from typing import Literal

from pydantic import Field

from records.evaluators.contract import NO_OUTPUT, NO_REFERENCE, Evaluator, Judge, Score, UnscorableError, scored
from records.evaluators.texts import TextParams, list_reference_texts, read_text
from records.record import Record

MAX_COMPARISONS = 10_000_000_000
"""Characters of the output times characters of all its references; about a quarter of a second."""


class FuzzyMatchParams(TextParams):
    """Parameters of fuzzy_match."""

    threshold: float | None = Field(
        default=None, ge=0, le=1, description="Similarity from which a record passes; unset: nothing passes or fails."
    )
    method: Literal["ratio", "token_sort_ratio", "token_set_ratio"] = Field(
        default="ratio",
        description="Compare the texts as they are, their words sorted, or their sets of words.",
    )


def build_judge(params: FuzzyMatchParams) -> Judge:
    """Build the judge."""
    from rapidfuzz import fuzz

    compare = {
        "ratio": fuzz.ratio,
        "token_sort_ratio": fuzz.token_sort_ratio,
        "token_set_ratio": fuzz.token_set_ratio,
    }[params.method]

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        references = [params.fold(reference) for reference in list_reference_texts(record)]
        if not references:
            return NO_REFERENCE
        output = params.fold(read_text(record.output))
        if output in references:
            return scored(1.0, at_least=params.threshold)
        characters = sum(map(len, references))
        if len(output) * characters > MAX_COMPARISONS:
            message = (
                f"the texts are too long to compare ({len(output)} characters with {characters} of the reference; "
                f"the product may be at most {MAX_COMPARISONS:,})"
            )
            raise UnscorableError(message)
        return scored(max(compare(output, reference) for reference in references) / 100.0, at_least=params.threshold)

    return judge


EVALUATOR = Evaluator(
    name="fuzzy_match",
    version=1,
    kind="number",
    description="How similar output and reference are, character by character (normalized indel similarity).",
    score_meaning="0 (nothing in common) to 1 (equal); the best of a list of references. With threshold, a record "
    "passes from that similarity on. Skipped without an output or a reference.",
    params=FuzzyMatchParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
