"""Token F1: how many words output and reference share.

The F1 measure of Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (2016), section 6.1,
as the official script of SQuAD 2.0 computes it: lower case, ASCII punctuation and the English articles a, an, the
removed, words split at white space; precision and recall over the words that both have, as many times as both have
them. When one side has no words left, the score is 1 if the other has none either, else 0. Of a list of references the
best one counts. A value that is not a text takes part as its canonical JSON text (RFC 8785). Text in scripts without
spaces is one word: use fuzzy_match there.
"""

import re
import string
from collections import Counter

from pydantic import Field

from records.evaluators.contract import NO_OUTPUT, NO_REFERENCE, Evaluator, EvaluatorParams, Judge, Score, scored
from records.evaluators.texts import list_reference_texts, read_text
from records.record import Record

_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation)}]+")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


class TokenF1Params(EvaluatorParams):
    """Parameters of token_f1."""

    threshold: float | None = Field(
        default=None, ge=0, le=1, description="F1 from which a record passes; unset: nothing passes or fails."
    )


def split_words(text: str) -> list[str]:
    """Normalize a text as SQuAD does and split it into words."""
    return _ARTICLES.sub(" ", _PUNCTUATION.sub("", text.lower())).split()


def compute_f1(output: list[str], reference: list[str]) -> float:
    """Return the F1 of two bags of words, 0 to 1."""
    if not output or not reference:
        return float(output == reference)
    left = Counter(reference)
    shared = 0
    for word in output:
        if left[word] > 0:
            left[word] -= 1
            shared += 1
    return 2.0 * shared / (len(output) + len(reference))


def build_judge(params: TokenF1Params) -> Judge:
    """Build the judge."""

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        references = list_reference_texts(record)
        if not references:
            return NO_REFERENCE
        output = split_words(read_text(record.output))
        best = max(compute_f1(output, split_words(reference)) for reference in references)
        return scored(best, at_least=params.threshold)

    return judge


EVALUATOR = Evaluator(
    name="token_f1",
    version=1,
    kind="number",
    description="How many words output and reference share (F1 of SQuAD).",
    score_meaning="0 (no word in common) to 1 (the same words); the best of a list of references. With threshold, a "
    "record passes from that F1 on. Skipped without an output or a reference.",
    params=TokenF1Params,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
