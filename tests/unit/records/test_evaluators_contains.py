from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.record import Record


def judge(output: Any, reference: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("contains", params)(Record(id="r", output=output, reference=reference))
    return score.status, score.score, score.passed


PASS = ("scored", 1.0, True)
FAIL = ("scored", 0.0, False)
SKIP = ("skipped", None, None)


@pytest.mark.parametrize(
    ("output", "reference", "params", "expected"),
    [
        ("It is Paris.", "Paris", {}, PASS),
        ("It is Paris.", "paris", {}, FAIL),
        ("It is Paris.", "paris", {"ignore_case": True}, PASS),
        ("Zürich und Genf", "Zürich", {}, PASS),
        ("New\n  York City", "New York", {"ignore_whitespace": True}, PASS),
        ("cafe\u0301 crème", "caf\u00e9", {"unicode_form": "NFC"}, PASS),
        ("b", ["a", "b"], {}, PASS),
        ("b", ["a", "b"], {"mode": "all"}, FAIL),
        ("a b", ["a", "b"], {"mode": "all"}, PASS),
        ("c", ["a", "b"], {}, FAIL),
        ("", "a", {}, FAIL),
        ({"answer": "Paris", "n": 1.0}, '"n":1', {}, PASS),
        ({"b": 1, "a": 2}, {"a": 2, "b": 1}, {}, PASS),
        (["x", {"a": 1}], [{"a": 1}], {}, PASS),
        ("the answer is 42", 42, {}, PASS),
        ("I cannot help", None, {"text": "cannot"}, PASS),
        ("I cannot help", "can do", {"text": ["sorry", "cannot"]}, PASS),
        ("I cannot help", None, {"text": ["sorry", "cannot"], "mode": "all"}, FAIL),
        (None, "a", {}, SKIP),
        (None, None, {"text": "a"}, SKIP),
        ("a", None, {}, SKIP),
        ("a", [], {}, SKIP),
        ("a", "", {}, SKIP),
        ("a", ["", "b"], {}, FAIL),
        ("a", " ", {"ignore_whitespace": True}, SKIP),
    ],
)
def test_contains(output: Any, reference: Any, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert judge(output, reference, **params) == expected


@pytest.mark.parametrize("text", ["", [], ["a", ""], 5, ["a", 5], ["a"] * 1001, {"a": 1}])
def test_a_text_that_cannot_be_looked_for_is_refused(text: Any) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate("contains", {"text": text}, at="/params")
    assert [problem.pointer for problem in refusal.value.problems] == ["/params/text"]
    assert "none of them empty" in refusal.value.problems[0].message


@given(st.text("ab é"), st.text("ab é", min_size=1), st.text("ab é"))
def test_a_text_contains_its_parts(before: str, middle: str, after: str) -> None:
    assert judge(before + middle + after, middle) == PASS
