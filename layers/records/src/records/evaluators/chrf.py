"""chrF: how many short sequences of characters output and reference share.

The character n-gram F-score of Popović, "chrF: character n-gram F-score for automatic MT evaluation" (2015), computed
per record the way ``sacrebleu`` computes it (chrF2), divided by 100: sequences of one to six characters without white
space, precision and recall averaged over the lengths that both texts have, recall twice as important. Needs no words,
so it suits any script. Two texts without a character are equal. Of a list of references the best one counts. A value
that is not a text takes part as its canonical JSON text (RFC 8785).
"""

from pydantic import Field

from records.evaluators.contract import NO_OUTPUT, NO_REFERENCE, Evaluator, EvaluatorParams, Judge, Score, scored
from records.evaluators.ngrams import count_ngrams, count_shared, require_countable
from records.evaluators.texts import list_reference_texts, read_text
from records.record import Record

_MAX_ORDER = 6
_BETA_SQUARED = 4


class ChrfParams(EvaluatorParams):
    """Parameters of chrf."""

    ignore_case: bool = Field(default=False, description="Compare in lower case.")
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="chrF from which a record passes; unset: nothing passes or fails."
    )


def compute_chrf(output: str, reference: str) -> float:
    """Return the chrF2 of two texts without white space, 0 to 1."""
    orders = min(_MAX_ORDER, len(output), len(reference))
    if not orders:
        return float(output == reference)
    precision = recall = 0.0
    for n in range(1, orders + 1):
        shared = count_shared(count_ngrams(output, n), count_ngrams(reference, n))
        precision += shared / (len(output) - n + 1) / orders
        recall += shared / (len(reference) - n + 1) / orders
    if not precision:
        return 0.0
    return min((1 + _BETA_SQUARED) * precision * recall / (_BETA_SQUARED * precision + recall), 1.0)


def build_judge(params: ChrfParams) -> Judge:
    """Build the judge."""

    def read(text: str) -> str:
        return "".join((text.lower() if params.ignore_case else text).split())

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        references = list_reference_texts(record)
        if not references:
            return NO_REFERENCE
        output = read_text(record.output)
        require_countable(output, *references)
        best = max(compute_chrf(read(output), read(reference)) for reference in references)
        return scored(best, at_least=params.threshold)

    return judge


EVALUATOR = Evaluator(
    name="chrf",
    version=1,
    kind="number",
    description="How many sequences of up to six characters output and reference share (chrF2).",
    score_meaning="0 (no character in common) to 1 (equal but for white space); sacrebleu's chrF divided by 100, the "
    "best of a list of references. With threshold, a record passes from that chrF on. Skipped without an output or a "
    "reference.",
    params=ChrfParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
