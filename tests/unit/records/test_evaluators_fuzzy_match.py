from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.record import Record

TEXTS = st.text("abcé \n", max_size=12)


def judge(output: Any, reference: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("fuzzy_match", params)(Record(id="r", output=output, reference=reference))
    return score.status, score.score, score.passed


def similarity_by_table(left: str, right: str) -> float:
    """Twice the longest common subsequence over the sum of the lengths, from the textbook's table."""
    if not left and not right:
        return 1.0
    row = [0] * (len(right) + 1)
    for a in left:
        previous = row
        row = [0]
        for at, b in enumerate(right, 1):
            row.append(previous[at - 1] + 1 if a == b else max(previous[at], row[at - 1]))
    return 2 * row[-1] / (len(left) + len(right))


@pytest.mark.parametrize(
    ("output", "reference", "params", "score", "passed"),
    [
        ("Paris", "Paris", {}, 1.0, None),
        ("abcd", "wxyz", {}, 0.0, None),
        ("", "", {}, 1.0, None),
        ("", "x", {}, 0.0, None),
        ("kitten", "sitting", {}, 8 / 13, None),
        ("Zürich", "Zurich", {}, 10 / 12, None),
        ("PARIS", "paris", {"ignore_case": True}, 1.0, None),
        ("a  b", "a b", {"ignore_whitespace": True}, 1.0, None),
        ("world hello", "hello world", {"method": "token_sort_ratio"}, 1.0, None),
        ("hello hello world", "world hello", {"method": "token_set_ratio"}, 1.0, None),
        ("abcd", ["wxyz", "abcx"], {}, 0.75, None),
        ("abcd", "abcx", {"threshold": 0.75}, 0.75, True),
        ("abcd", "abcx", {"threshold": 0.76}, 0.75, False),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1.0}, {}, 1.0, None),
        (12, "12", {}, 1.0, None),
    ],
)
def test_fuzzy_match(output: Any, reference: Any, params: dict[str, Any], score: float, passed: bool | None) -> None:
    assert judge(output, reference, **params) == ("scored", pytest.approx(score), passed)


@pytest.mark.parametrize(("output", "reference"), [(None, "a"), ("a", None), ("a", [])])
def test_what_cannot_be_compared_is_skipped(output: Any, reference: Any) -> None:
    assert judge(output, reference, threshold=0.5) == ("skipped", None, None)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, "0.5", float("nan")])
def test_a_threshold_is_a_similarity(threshold: Any) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate("fuzzy_match", {"threshold": threshold})
    assert [problem.pointer for problem in refusal.value.problems] == ["/threshold"]


def test_texts_too_long_to_compare_are_an_error_of_that_row() -> None:
    scorer = catalogue.build("fuzzy_match")
    score = scorer(Record(id="r", output="ab" * 200_000, reference="ba" * 200_000))
    assert (score.status, score.score) == ("error", None)
    assert score.message is not None
    assert "too long" in score.message
    assert scorer(Record(id="r", output="ab" * 200_000, reference="ab" * 200_000)).score == 1.0


@given(TEXTS, TEXTS)
def test_similarity_agrees_with_the_longest_common_subsequence(output: str, reference: str) -> None:
    assert judge(output, reference)[1] == pytest.approx(similarity_by_table(output, reference), abs=1e-12)


@given(
    TEXTS, st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(["ratio", "token_sort_ratio", "token_set_ratio"])
)
def test_similarity_is_between_0_and_1_and_the_best_reference_counts(
    output: str, references: list[str], method: str
) -> None:
    best = judge(output, references, method=method)[1]
    assert 0 <= best <= 1
    assert best == max(judge(output, reference, method=method)[1] for reference in references)
    assert best == judge(output, references, method=method)[1]
