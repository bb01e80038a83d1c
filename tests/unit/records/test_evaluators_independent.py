"""Every deterministic evaluator beside an implementation of its measure that is none of ours.

sacrebleu, rouge-score, numpy, scipy, difflib, json and the textbook; json_schema has its own file (jsonschema), and so
have intervals (scipy, statsmodels) and token_f1 (the steps of SQuAD's script).
"""

from __future__ import annotations

import functools
import json
import math
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.record import Record
from scipy.optimize import linear_sum_assignment

ASCII = st.text(string.ascii_letters + string.digits + string.punctuation + "  ", max_size=60)
WORDS = st.lists(
    st.sampled_from(["the", "cat", "on", "a", "mat,", "dog.", "ran", "3.5", "U.S.", "x-y"]), min_size=1, max_size=15
)
SENTENCES = WORDS.map(" ".join)
CALLS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=5)


def judge(
    name: str, output: Any, reference: Any = None, usage: Any = None, trajectory: Any = None, **params: Any
) -> Any:
    record = Record(id="r", output=output, reference=reference, usage=usage, trajectory=trajectory)
    return catalogue.build(name, params)(record)


@functools.cache
def sacrebleu_metrics() -> tuple[Any, Any, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return BLEU(effective_order=True), BLEU(effective_order=True, lowercase=True), CHRF()


@functools.cache
def rouge_scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], use_stemmer=False)


@settings(max_examples=150, deadline=None)
@given(SENTENCES | ASCII, st.lists(SENTENCES | ASCII, min_size=1, max_size=3))
def test_bleu_and_chrf_are_those_of_sacrebleu(output: str, references: list[str]) -> None:
    # Two texts without a word are equal for us, and 0 for sacrebleu.
    assume(output.split() and all(reference.split() for reference in references))
    bleu, bleu_in_lower_case, chrf = sacrebleu_metrics()
    for params, metric in (({}, bleu), ({"ignore_case": True}, bleu_in_lower_case)):
        expected = metric.sentence_score(output, references).score / 100
        assert judge("bleu", output, references, **params).score == pytest.approx(expected, abs=1e-12)
    expected = chrf.sentence_score(output, references).score / 100
    assert judge("chrf", output, references).score == pytest.approx(expected, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(SENTENCES | ASCII, st.lists(SENTENCES | ASCII, min_size=1, max_size=3))
def test_rouge_l_is_that_of_rouge_score(output: str, references: list[str]) -> None:
    words = re.compile("[a-z0-9]")
    assume(words.search(output.lower()) and all(words.search(reference.lower()) for reference in references))
    expected = max(rouge_scorer().score(reference, output)["rougeL"].fmeasure for reference in references)
    assert judge("rouge_l", output, references).score == pytest.approx(expected, abs=1e-12)


@settings(max_examples=150)
@given(ASCII, ASCII)
def test_fuzzy_match_is_the_indel_similarity_of_the_textbook(output: str, reference: str) -> None:
    table = np.zeros((len(output) + 1, len(reference) + 1), int)
    for i, one in enumerate(output):
        for j, other in enumerate(reference):
            table[i + 1, j + 1] = table[i, j] + 1 if one == other else max(table[i, j + 1], table[i + 1, j])
    total = len(output) + len(reference)
    expected = 2 * int(table[-1, -1]) / total if total else 1.0
    assert judge("fuzzy_match", output, reference).score == pytest.approx(expected, abs=1e-12)


@given(
    st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.sampled_from([0.0, 0.5, 100.0]), st.sampled_from([0.0, 0.01, 0.5])
)
def test_numeric_match_is_closeness_as_numpy_has_it(
    output: float, reference: float, tolerance: float, relative: float
) -> None:
    allowed = max(tolerance, relative * abs(reference))
    # On the very border doubles round; ours is exact there.
    assume(not math.isclose(abs(output - reference), allowed, rel_tol=1e-9))
    expected = bool(np.abs(np.float64(output) - np.float64(reference)) <= allowed) or output == reference
    score = judge("numeric_match", output, reference, tolerance=tolerance, relative_tolerance=relative)
    assert score.passed is expected


@given(ASCII, ASCII)
def test_exact_match_and_contains_are_those_of_python(output: str, reference: str) -> None:
    assert judge("exact_match", output, reference).passed is (output == reference)
    folded = judge("exact_match", output, reference, ignore_case=True, ignore_whitespace=True)
    assert folded.passed is (output.casefold().split() == reference.casefold().split())
    assume(reference)
    assert judge("contains", output, reference).passed is (reference in output)
    assert judge("contains", output, text=reference, mode="all").passed is (reference in output)


@given(st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | ASCII, lambda inner: st.lists(inner, max_size=3)))
def test_exact_match_of_values_is_equality_of_their_json(value: Any) -> None:
    assume(value is not None and not isinstance(value, str))
    assert judge("exact_match", value, [json.loads(json.dumps(value))]).passed is True


@given(ASCII | st.sampled_from(['{"a": 1}', "[1, 2", "NaN", "1e999", " null ", '"\\ud83d\\ude00"', "01", "[1,]", "-0"]))
def test_json_valid_is_that_of_a_strict_parser(output: str) -> None:
    def refuse(_constant: str) -> None:
        raise ValueError("not JSON")

    try:
        value = json.loads(output, parse_constant=refuse)
        # A number beyond the range of a double is none that anybody could use.
        is_valid = not (isinstance(value, float) and math.isinf(value))
    except ValueError:
        is_valid = False
    assert judge("json_valid", output).passed is is_valid


@given(ASCII)
def test_length_is_the_number_of_characters(output: str) -> None:
    assert judge("length", output).score == len(output)


@given(st.floats(0, 1e6), st.integers(0, 10**9), st.integers(0, 10**9), st.floats(0, 100))
def test_usage_is_what_the_record_says(latency: float, sent: int, received: int, cost: float) -> None:
    usage = {"latency_ms": latency, "input_tokens": sent, "output_tokens": received, "cost_usd": cost}
    assert judge("latency", "x", usage=usage).score == latency
    assert judge("cost", "x", usage=usage).score == cost
    assert judge("tokens", "x", usage=usage).score == sent + received


def match_best(made: Sequence[Any], expected: Sequence[Any]) -> int:
    """Return the largest number of equal pairs, by scipy's solution of the assignment problem."""
    if not made or not expected:
        return 0
    gains = np.array([[int(one == other) for other in expected] for one in made])
    rows, columns = linear_sum_assignment(gains, maximize=True)
    return int(gains[rows, columns].sum())


@given(CALLS, CALLS)
def test_tool_calls_are_assigned_as_scipy_assigns_them(
    made: list[tuple[str, int]], expected: list[tuple[str, int]]
) -> None:
    trajectory = {"steps": [{"type": "tool_call", "name": name, "input": {"n": n}} for name, n in made]}
    reference = {"tool_calls": [{"name": name, "arguments": {"n": n}} for name, n in expected]}
    matches, most = match_best(made, expected), max(len(made), len(expected))

    def of(name: str, **params: Any) -> Any:
        return judge(name, "x", reference, trajectory=trajectory, arguments="exact", **params)

    accuracy = of("tool_call_accuracy")
    assume(accuracy.status == "scored")
    assert accuracy.score == pytest.approx(matches / most if most else 1.0)
    verdicts = {
        "strict": made == expected,
        "unordered": sorted(made) == sorted(expected),
        "superset": matches == len(expected),
        "subset": matches == len(made),
    }
    for mode, is_right in verdicts.items():
        assert of("trajectory_match", mode=mode).passed is is_right, mode
