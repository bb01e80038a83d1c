import re
import string
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.record import Record


def judge(output: Any, reference: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("token_f1", params)(Record(id="r", output=output, reference=reference))
    return score.status, score.score, score.passed


def f1_step_by_step(output: str, reference: str) -> float:
    """Precision and recall written out, as the measure is defined."""

    def words(text: str) -> list[str]:
        kept = "".join(character for character in text.lower() if character not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", kept).split()

    said, expected = words(output), words(reference)
    if not said or not expected:
        return float(said == expected)
    left = Counter(expected)
    shared = 0
    for word in said:
        if left[word] > 0:
            left[word] -= 1
            shared += 1
    if not shared:
        return 0.0
    precision, recall = shared / len(said), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize(
    ("output", "reference", "params", "score", "passed"),
    [
        ("Paris", "Paris", {}, 1.0, None),
        ("The Eiffel Tower!", "eiffel tower", {}, 1.0, None),
        ("in Paris, France", "Paris", {}, 0.5, None),
        ("London", "Paris", {}, 0.0, None),
        ("a a b", "b b", {}, 2 / 3, None),
        ("", "", {}, 1.0, None),
        ("the", "a", {}, 1.0, None),
        ("", "Paris", {}, 0.0, None),
        ("Paris", "the", {}, 0.0, None),
        ("Zürich Genf", "zürich", {}, 2 / 3, None),
        ("Paris France", ["London", "Paris", "Paris, France"], {}, 1.0, None),
        ("in Paris, France", "Paris", {"threshold": 0.5}, 0.5, True),
        ("in Paris, France", "Paris", {"threshold": 0.51}, 0.5, False),
        (42, "42", {}, 1.0, None),
        ({"a": "x"}, {"a": "x"}, {}, 1.0, None),
    ],
)
def test_token_f1(output: Any, reference: Any, params: dict[str, Any], score: float, passed: bool | None) -> None:
    assert judge(output, reference, **params) == ("scored", pytest.approx(score), passed)


@pytest.mark.parametrize(("output", "reference"), [(None, "a"), ("a", None), ("a", []), ("a", [None])])
def test_what_cannot_be_compared_is_skipped(output: Any, reference: Any) -> None:
    assert judge(output, reference) == ("skipped", None, None)


WORDS = st.lists(st.sampled_from(["the", "A", "an", "cat", "Cat,", "sat!", "-", "é", "the-cat", "\n"]), max_size=8)


@given(WORDS, WORDS)
def test_it_agrees_with_precision_and_recall_written_out(output: list[str], reference: list[str]) -> None:
    said, expected = " ".join(output), " ".join(reference)
    score = judge(said, expected)[1]
    assert 0 <= score <= 1
    assert score == pytest.approx(f1_step_by_step(said, expected), abs=1e-12)
    assert score == judge(expected, said)[1] == judge(said, expected)[1]
