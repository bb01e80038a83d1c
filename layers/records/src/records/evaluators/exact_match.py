"""Exact match: whether the output is the reference.

Texts are compared character by character, after what the parameters ignore; other JSON values are compared as values
(``1`` equals ``1.0``, the order of an object's names does not matter). A text never equals a value of another type:
``"42"`` is not ``42`` (numeric_match reads numbers out of texts). The measure is "exact match" of Rajpurkar et al.,
SQuAD (2016), section 6.1, without its normalization unless asked for.
"""

from records.evaluators.contract import NO_OUTPUT, NO_REFERENCE, Evaluator, Judge, Score, pass_or_fail
from records.evaluators.json_values import json_equal
from records.evaluators.texts import TextParams, list_references
from records.record import Record


class ExactMatchParams(TextParams):
    """Parameters of exact_match; they apply where output and reference are both texts."""


def build_judge(params: ExactMatchParams) -> Judge:
    """Build the judge; it folds texts only when a parameter asks for it."""
    folds = params != ExactMatchParams()

    def judge(record: Record) -> Score:
        output = record.output
        if output is None:
            return NO_OUTPUT
        references = list_references(record)
        if not references:
            return NO_REFERENCE
        if folds and isinstance(output, str):
            folded = params.fold(output)
            return pass_or_fail(any(isinstance(text, str) and params.fold(text) == folded for text in references))
        return pass_or_fail(any(json_equal(output, reference) for reference in references))

    return judge


EVALUATOR = Evaluator(
    name="exact_match",
    version=1,
    kind="pass_fail",
    description="Whether the output equals the reference, or any one of a list of references.",
    score_meaning="1 when the output equals a reference, else 0. Texts are compared as texts, other JSON values as "
    "values; to expect a list, put it into a list of references. Skipped without an output or a reference.",
    params=ExactMatchParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
