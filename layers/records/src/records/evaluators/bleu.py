"""BLEU of one record: how many short sequences of words the output shares with its references.

Papineni et al., "BLEU: a Method for Automatic Evaluation of Machine Translation" (2002), computed per record the way
``sacrebleu`` computes ``sentence_bleu``, divided by 100: words by the tokenizer of ``mteval-v13a``, sequences of up to
four words but of no more than the output has (effective order), a precision of 0 smoothed by halving (method 3 of Chen
and Cherry, 2014). All references of a list count together: a sequence is right when any has it, and the reference that
is nearest in length decides the brevity penalty. Two texts without a word are equal. The mean over records is not the
corpus BLEU of a paper. A value that is not a text takes part as its canonical JSON text (RFC 8785).
"""

import math
import re
import string
from collections import Counter
from collections.abc import Sequence

from pydantic import Field

from records.evaluators.contract import NO_OUTPUT, NO_REFERENCE, Evaluator, EvaluatorParams, Judge, Score, scored
from records.evaluators.ngrams import choose_nearest_length, count_ngrams, count_shared, require_countable
from records.evaluators.texts import list_reference_texts, read_text
from records.record import Record

_MAX_ORDER = 4
_ENTITIES = {"&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}
# mteval-v13a: all ASCII punctuation but these stands alone; the others depend on their neighbours.
_ALONE = re.compile(f"([{re.escape(''.join(sorted(set(string.punctuation) - set(chr(39) + ',-.'))))}])")
_MARK_AFTER_NO_DIGIT = re.compile(r"([^0-9])([.,])")
_MARK_BEFORE_NO_DIGIT = re.compile(r"([.,])([^0-9])")
_DASH_AFTER_DIGIT = re.compile(r"([0-9])(-)")


class BleuParams(EvaluatorParams):
    """Parameters of bleu."""

    ignore_case: bool = Field(default=False, description="Compare in lower case.")
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="BLEU from which a record passes; unset: nothing passes or fails."
    )


def split_words(text: str) -> tuple[str, ...]:
    """Split a text as ``mteval-v13a`` does."""
    text = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, character in _ENTITIES.items():
        text = text.replace(entity, character)
    text = _ALONE.sub(r" \1 ", f" {text} ")
    text = _MARK_AFTER_NO_DIGIT.sub(r"\1 \2 ", text)
    text = _MARK_BEFORE_NO_DIGIT.sub(r" \1 \2", text)
    return tuple(_DASH_AFTER_DIGIT.sub(r"\1 \2 ", text).split())


def compute_bleu(output: tuple[str, ...], references: Sequence[tuple[str, ...]]) -> float:
    """Return the BLEU of words against the words of at least one reference, 0 to 1."""
    if not output:
        return float(output in references)
    log_precisions: list[float] = []
    halving = 1.0
    shares_any = False
    for n in range(1, min(_MAX_ORDER, len(output)) + 1):
        expected: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            expected |= count_ngrams(reference, n)
        shared = count_shared(count_ngrams(output, n), expected)
        total = len(output) - n + 1
        if shared:
            shares_any = True
            log_precisions.append(math.log(shared / total))
        else:
            halving *= 2
            log_precisions.append(-math.log(halving * total))
    if not shares_any:
        return 0.0
    length = choose_nearest_length(len(output), [len(reference) for reference in references])
    brevity = min(0.0, 1 - length / len(output))
    return min(math.exp(brevity + math.fsum(log_precisions) / len(log_precisions)), 1.0)


def build_judge(params: BleuParams) -> Judge:
    """Build the judge."""

    def read(text: str) -> tuple[str, ...]:
        return split_words(text.lower() if params.ignore_case else text)

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        references = list_reference_texts(record)
        if not references:
            return NO_REFERENCE
        output = read_text(record.output)
        require_countable(output, *references)
        return scored(compute_bleu(read(output), [read(text) for text in references]), at_least=params.threshold)

    return judge


EVALUATOR = Evaluator(
    name="bleu",
    version=1,
    kind="number",
    description="How many sequences of up to four words the output shares with its references (sentence BLEU).",
    score_meaning="0 (no word in common) to 1 (equal); sacrebleu's sentence BLEU divided by 100. All references of a "
    "list count together. With threshold, a record passes from that BLEU on. Skipped without an output or a reference.",
    params=BleuParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
