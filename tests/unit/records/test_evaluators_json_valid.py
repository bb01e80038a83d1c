import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.record import Record


def judge(output: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("json_valid", params)(Record(id="r", output=output))
    return score.status, score.score, score.passed


PASS = ("scored", 1.0, True)
FAIL = ("scored", 0.0, False)


def is_json_for_python(text: str) -> bool:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("output", "params", "expected"),
    [
        ('{"a": [1, 2.5e3, null, true, "é"]}', {}, PASS),
        ("  [1]\n", {}, PASS),
        ("42", {}, PASS),
        ('"text"', {}, PASS),
        ("null", {}, PASS),
        ('{"a": 1, "a": 2}', {}, PASS),
        ("1" * 30, {}, PASS),
        ('{"a": 1,}', {}, FAIL),
        ("{'a': 1}", {}, FAIL),
        ('{"a": 1} and more', {}, FAIL),
        ("", {}, FAIL),
        ("NaN", {}, FAIL),
        ("[Infinity]", {}, FAIL),
        ("01", {}, FAIL),
        ('"a\nb"', {}, FAIL),
        (r'"\ud835"', {}, FAIL),
        ("[" * 100_000, {}, FAIL),
        ("42", {"type": "object"}, FAIL),
        ("[]", {"type": "object"}, FAIL),
        ("{}", {"type": "object"}, PASS),
        ("[]", {"type": "array"}, PASS),
        ("{}", {"type": "array"}, FAIL),
        ('```json\n{"a": 1}\n```', {}, FAIL),
        ('```json\n{"a": 1}\n```', {"allow_fence": True}, PASS),
        ('\n```\r\n{"a":\n 1}\r\n```\n', {"allow_fence": True, "type": "object"}, PASS),
        ("```json\n{a}\n```", {"allow_fence": True}, FAIL),
        ('Sure!\n```json\n{"a": 1}\n```', {"allow_fence": True}, FAIL),
        ("[1]", {"allow_fence": True}, PASS),
        ({"a": 1}, {}, PASS),
        ([1], {"type": "array"}, PASS),
        (5, {"type": "object"}, FAIL),
        (False, {}, PASS),
        (None, {}, ("skipped", None, None)),
    ],
)
def test_json_valid(output: Any, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert judge(output, **params) == expected


@given(st.text('{}[]",:0123456789.eE+-tfn ulrase\\', max_size=12))
def test_it_agrees_with_the_standard_library(text: str) -> None:
    assert judge(text) == (PASS if is_json_for_python(text) else FAIL)


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.text("aé\n"), lambda inner: st.lists(inner, max_size=3))
)
def test_what_a_writer_writes_is_json(value: Any) -> None:
    assert judge(json.dumps(value)) == PASS
