import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.record import Record


def judge(output: Any, reference: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("numeric_match", params)(Record(id="r", output=output, reference=reference))
    return score.status, score.score, score.passed


PASS = ("scored", 1.0, True)
FAIL = ("scored", 0.0, False)
SKIP = ("skipped", None, None)


@pytest.mark.parametrize(
    ("output", "reference", "params", "expected"),
    [
        (42, 42, {}, PASS),
        (42, 42.0, {}, PASS),
        ("42.0", 42, {}, PASS),
        ("42", "42.00", {}, PASS),
        (" 4.2e1\n", 42, {}, PASS),
        ("1,234.5", 1234.5, {}, PASS),
        ("12,34", 1234, {}, FAIL),
        (".5", 0.5, {}, PASS),
        ("\u22125", -5, {}, PASS),
        ("-0", 0, {}, PASS),
        (43, 42, {}, FAIL),
        (1.1, 1.0, {"tolerance": 0.1}, PASS),
        ("1.10000001", 1.0, {"tolerance": 0.1}, FAIL),
        (0.3, 0.1, {"tolerance": 0.2}, PASS),
        (101, 100, {"relative_tolerance": 0.01}, PASS),
        (101.1, 100, {"relative_tolerance": 0.01}, FAIL),
        (-101, -100, {"relative_tolerance": 0.01}, PASS),
        (100, 101, {"relative_tolerance": 0.0099}, FAIL),
        (0.5, 0, {"relative_tolerance": 0.9}, FAIL),
        (101, 100, {"tolerance": 1, "relative_tolerance": 0.0001}, PASS),
        (2**63 + 1, 2**63, {}, FAIL),
        ("12345678901234567890123456789012345678901", "12345678901234567890123456789012345678902", {}, FAIL),
        ("1e9999", "1e9999", {}, PASS),
        (7, [1, "7"], {}, PASS),
        (7, ["seven", 7], {}, PASS),
        ("The answer is 42.", 42, {}, FAIL),
        ("The answer is 42.", 42, {"extract": "last"}, PASS),
        ("7 of 42", 7, {"extract": "first"}, PASS),
        ("7 of 42", 42, {"extract": "last"}, PASS),
        ("costs $1,299.50 now", 1299.5, {"extract": "first"}, PASS),
        ("range 3-5", 5, {"extract": "last"}, PASS),
        ("it is -5 degrees", -5, {"extract": "last"}, PASS),
        ("it is (-5)", -5, {"extract": "last"}, PASS),
        ("1,2345", 2345, {"extract": "last"}, PASS),
        ("I do not know", 42, {"extract": "last"}, FAIL),
        ("", 42, {}, FAIL),
        ("NaN", 42, {}, FAIL),
        ("٤٢", 42, {}, FAIL),
        ("9" * 500, 42, {}, FAIL),
        (True, 1, {}, FAIL),
        ({"value": 42}, 42, {}, FAIL),
        ([42], 42, {}, FAIL),
        (None, 42, {}, SKIP),
        (42, None, {}, SKIP),
        (42, [], {}, SKIP),
        (42, "forty-two", {}, SKIP),
        (42, {"value": 42}, {}, SKIP),
        (1, True, {}, SKIP),
    ],
)
def test_numeric_match(output: Any, reference: Any, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert judge(output, reference, **params) == expected


@pytest.mark.parametrize("params", [{"tolerance": -1}, {"relative_tolerance": -0.1}, {"tolerance": float("inf")}])
def test_a_tolerance_is_a_finite_number_of_at_least_0(params: dict[str, Any]) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate("numeric_match", params)
    assert [problem.pointer for problem in refusal.value.problems] == [f"/{name}" for name in params]


@pytest.mark.parametrize("text", ["1,234," * 100_000 + "x", "9" * 1_000_000, "-" * 1_000_000, "1e" * 500_000])
@pytest.mark.parametrize("extract", ["whole", "first", "last"])
def test_no_text_makes_the_search_for_a_number_hang(text: str, extract: str) -> None:
    assert judge(text, -1.5, extract=extract) == FAIL


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(0, 10), st.floats(0, 0.5))
def test_tolerances_agree_with_isclose(output: float, reference: float, absolute: float, relative: float) -> None:
    difference, allowed = abs(output - reference), max(absolute, relative * abs(reference))
    if not math.isclose(difference, allowed, rel_tol=1e-9, abs_tol=1e-9):
        expected = PASS if difference < allowed else FAIL
        assert judge(output, reference, tolerance=absolute, relative_tolerance=relative) == expected
        assert judge(repr(output), repr(reference), tolerance=absolute, relative_tolerance=relative) == expected


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_matches_its_own_text(number: float) -> None:
    assert judge(repr(number), number) == PASS
    assert judge(f"so x = {number!r} then", number, extract="last") == PASS
