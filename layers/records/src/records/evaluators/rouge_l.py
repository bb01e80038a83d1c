"""ROUGE-L: how much of output and reference is one common sequence of words.

The sentence-level F-measure of Lin, "ROUGE: A Package for Automatic Evaluation of Summaries" (2004), section 3.1, with
equal weight of precision and recall: a longest common subsequence of c words in an output of m and a reference of n
words gives ``2c / (m + n)``. Words are runs of letters and digits in lower case, without stemming; for ASCII text that
is what Google's ``rouge-score`` computes as ``rougeL``, and in other scripts, which that drops, letters are words too.
Two texts without a word are equal. Of a list of references the best one counts. A value that is not a text takes part
as its canonical JSON text (RFC 8785).
"""

import re

from pydantic import Field

from records.evaluators.contract import (
    NO_OUTPUT,
    NO_REFERENCE,
    Evaluator,
    EvaluatorParams,
    Judge,
    Score,
    UnscorableError,
    scored,
)
from records.evaluators.texts import list_reference_texts, read_text
from records.record import Record

MAX_COMPARISONS = 2_000_000_000
"""Words of the output times words of all its references; about two seconds."""

_WORD = re.compile(r"[^\W_]+")


class RougeLParams(EvaluatorParams):
    """Parameters of rouge_l."""

    threshold: float | None = Field(
        default=None, ge=0, le=1, description="F-measure from which a record passes; unset: nothing passes or fails."
    )


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())


def build_judge(params: RougeLParams) -> Judge:
    """Build the judge."""
    from rapidfuzz.distance import LCSseq

    def compare(output: list[str], reference: list[str]) -> float:
        if not output or not reference:
            return float(output == reference)
        return 2.0 * LCSseq.similarity(output, reference) / (len(output) + len(reference))

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        references = [split_words(reference) for reference in list_reference_texts(record)]
        if not references:
            return NO_REFERENCE
        output = split_words(read_text(record.output))
        words = sum(map(len, references))
        if len(output) * words > MAX_COMPARISONS:
            message = (
                f"the texts are too long to compare ({len(output)} words with {words} of the reference; the product "
                f"may be at most {MAX_COMPARISONS:,})"
            )
            raise UnscorableError(message)
        return scored(max(compare(output, reference) for reference in references), at_least=params.threshold)

    return judge


EVALUATOR = Evaluator(
    name="rouge_l",
    version=1,
    kind="number",
    description="How much of output and reference is one common sequence of words (ROUGE-L F-measure).",
    score_meaning="0 (no word in common) to 1 (the same words in the same order); the best of a list of references. "
    "With threshold, a record passes from that F-measure on. Skipped without an output or a reference.",
    params=RougeLParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
