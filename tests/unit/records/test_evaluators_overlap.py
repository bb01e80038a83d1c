"""rouge_l, bleu and chrf against rouge-score and sacrebleu, whose scores are in tests/cases/overlap_scores.json."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue, ngrams, rouge_l
from records.evaluators.contract import Score
from records.evaluators.ngrams import choose_nearest_length
from records.record import Record

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "overlap_scores.json").read_text("utf-8")
)["cases"]
NAMES = ("bleu", "chrf", "rouge_l")


def judge(name: str, output: Any, reference: Any, **params: Any) -> Score:
    return catalogue.build(name, params)(Record(id="r", output=output, reference=reference))


def is_empty(case: dict[str, Any]) -> bool:
    """Whether output and some reference hold no word: equal for us, 0 for sacrebleu."""
    return not case["output"].split() and any(not reference.split() for reference in case["references"])


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_independent_implementation(name: str) -> None:
    checked = 0
    for case in CASES:
        if name in case and not is_empty(case):
            score = judge(name, case["output"], case["references"])
            assert score.score == pytest.approx(case[name], abs=1e-12), (case["output"], case["references"])
            checked += 1
    assert checked > 50


def longest_common_subsequence(left: list[str], right: list[str]) -> int:
    """The textbook table."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, one in enumerate(left):
        for j, other in enumerate(right):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


@given(st.lists(st.sampled_from("abcd"), min_size=1), st.lists(st.sampled_from("abcd"), min_size=1))
def test_rouge_l_is_the_f_measure_of_the_longest_common_subsequence(left: list[str], right: list[str]) -> None:
    expected = 2 * longest_common_subsequence(left, right) / (len(left) + len(right))
    assert judge("rouge_l", " ".join(left), " ".join(right)).score == pytest.approx(expected)


@given(st.text(max_size=40), st.text(max_size=40))
def test_scores_stay_between_0_and_1_and_equal_texts_score_1(left: str, right: str) -> None:
    for name in NAMES:
        score = judge(name, left, right)
        assert score.status == "error" or 0.0 <= (score.score or 0.0) <= 1.0
        same = judge(name, left, left)
        assert same.status == "error" or same.score == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("output", "reference", "status", "score"),
    [
        (None, "a", "skipped", None),
        ("a", None, "skipped", None),
        ("a", [], "skipped", None),
        ("", "", "scored", 1.0),
        ("", "a", "scored", 0.0),
        ("a", "", "scored", 0.0),
        ("x", "y", "scored", 0.0),
        ({"a": 1}, {"a": 1}, "scored", 1.0),
        ("Zürich Genf", "Zürich Genf", "scored", 1.0),
    ],
)
def test_edges(name: str, output: Any, reference: Any, status: str, score: float | None) -> None:
    made = judge(name, output, reference)
    assert (made.status, made.score) == (status, score if score is None else pytest.approx(score))


def test_words_of_other_scripts_count_in_rouge_l() -> None:
    assert judge("rouge_l", "Привет мир", "привет, мир!").score == 1.0


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_case_counts_unless_it_is_ignored(name: str) -> None:
    assert judge(name, "THE CAT", "the cat").score == 0.0
    assert judge(name, "THE CAT", "the cat", ignore_case=True).score == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_threshold_decides_what_passes(name: str) -> None:
    assert judge(name, "the cat", "the cat", threshold=0.9).passed is True
    assert judge(name, "the cat", "a dog", threshold=0.9).passed is False
    assert judge(name, "the cat", "the cat").passed is None


@pytest.mark.parametrize("name", ["rouge_l", "chrf"])
def test_the_best_reference_counts(name: str) -> None:
    assert judge(name, "the cat", ["a dog", "the cat"]).score == pytest.approx(1.0)


def test_texts_that_would_stall_a_shard_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rouge_l, "MAX_COMPARISONS", 3)
    monkeypatch.setattr(ngrams, "MAX_CHARACTERS", 3)
    assert judge("rouge_l", "a b", "a b").status == "error"
    for name in ("bleu", "chrf"):
        score = judge(name, "abcd", "a")
        assert (score.status, "too many" in (score.message or "")) == ("error", True)


def test_of_two_lengths_as_near_the_shorter_counts() -> None:
    assert choose_nearest_length(5, [7, 3]) == 3
    assert choose_nearest_length(5, [1, 6]) == 6


def test_listing_the_catalogue_loads_nothing_heavy() -> None:
    program = (
        "import sys; from records.evaluators import catalogue; catalogue.list_evaluators();"
        "print([name for name in ('rapidfuzz', 'sacrebleu', 'nltk', 'numpy') if name in sys.modules])"
    )
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert listed.stdout.strip() == "[]"
