import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.evaluators.json_values import json_equal
from records.record import Record

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc~/é", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def judge(output: Any, reference: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("exact_match", params)(Record(id="r", output=output, reference=reference))
    return score.status, score.score, score.passed


PASS = ("scored", 1.0, True)
FAIL = ("scored", 0.0, False)
SKIP = ("skipped", None, None)


@pytest.mark.parametrize(
    ("output", "reference", "params", "expected"),
    [
        ("Paris", "Paris", {}, PASS),
        ("Paris", "paris", {}, FAIL),
        ("Paris", "paris", {"ignore_case": True}, PASS),
        ("STRASSE", "straße", {"ignore_case": True}, PASS),
        (" Paris \n", "Paris", {}, FAIL),
        (" New\n York ", "New York", {"ignore_whitespace": True}, PASS),
        ("NewYork", "New York", {"ignore_whitespace": True}, FAIL),
        ("caf\u00e9", "cafe\u0301", {}, FAIL),
        ("caf\u00e9", "cafe\u0301", {"unicode_form": "NFC"}, PASS),
        ("ﬁne", "FINE", {"unicode_form": "NFKC", "ignore_case": True}, PASS),
        ("", "", {}, PASS),
        ("", "x", {}, FAIL),
        ("b", ["a", "b"], {}, PASS),
        ("c", ["a", "b"], {}, FAIL),
        ("B", ["a", "b"], {"ignore_case": True}, PASS),
        ("a", [None, "a"], {}, PASS),
        (["a", "b"], [["a", "b"]], {}, PASS),
        (["a", "b"], ["a", "b"], {}, FAIL),
        (1, 1.0, {}, PASS),
        (2**53 + 1, float(2**53), {}, FAIL),
        (0, -0.0, {}, PASS),
        (True, 1, {}, FAIL),
        (1, True, {}, FAIL),
        (False, False, {}, PASS),
        ("42", 42, {}, FAIL),
        ({"a": 1, "b": [True, None]}, {"b": [True, None], "a": 1.0}, {}, PASS),
        ({"a": 1}, {"a": 1, "b": None}, {}, FAIL),
        ({"a": 1}, {"b": 1}, {}, FAIL),
        ({"a": "X"}, {"a": "x"}, {"ignore_case": True}, FAIL),
        ({"a": [1, 2]}, {"a": [2, 1]}, {}, FAIL),
        ({"a": 1}, ["a"], {}, FAIL),
        (None, "a", {}, SKIP),
        ("a", None, {}, SKIP),
        ("a", [], {}, SKIP),
        ("a", [None], {}, SKIP),
    ],
)
def test_exact_match(output: Any, reference: Any, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert judge(output, reference, **params) == expected


@given(JSON_VALUES)
def test_a_value_equals_itself_after_a_round_trip_through_json(value: Any) -> None:
    assert json_equal(value, json.loads(json.dumps(value)))


@given(JSON_VALUES, JSON_VALUES)
def test_equality_is_symmetric_and_tells_booleans_from_numbers(left: Any, right: Any) -> None:
    def tag(value: Any) -> Any:
        """Tagged with their JSON types, Python compares as JSON does."""
        if isinstance(value, bool) or value is None:
            return ("constant", str(value))
        if isinstance(value, int | float):
            return ("number", value)
        if isinstance(value, list):
            return ("list", [tag(item) for item in value])
        if isinstance(value, dict):
            return ("object", {name: tag(item) for name, item in value.items()})
        return ("text", value)

    assert json_equal(left, right) == json_equal(right, left) == (tag(left) == tag(right))


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_text_matches_itself_whatever_is_ignored(text: str) -> None:
    assert judge(text, text) == PASS
    assert judge(text, text, ignore_case=True, ignore_whitespace=True, unicode_form="NFKC") == PASS
