"""Canonical JSON, held against an independent implementation of RFC 8785 and the vectors of ECMAScript."""

import datetime as dt
import json
import math
import struct
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st
from records.canonical_json import NotCanonicalError, canonical_json, in_utf16_order, is_order_unsure
from records.ecmascript_number import EXACT_INTEGER_MAX, number_text

# RFC 8785, appendix B: the bits of a double and its text.
APPENDIX_B = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]

# RFC 8785, sections 3.2.3 and 3.2.4, and the published test data of its authors.
GOLDEN: list[tuple[str, str]] = [
    (
        r'{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"literals":[null,true,false]}',
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27]}',
    ),
    (
        r'["\u20ac$\u000F\u000aA\u0027\u0042\u0022\u005c\\\"\/"]',
        r"""["€$\u000f\nA'B\"\\\\\"/"]""",
    ),
    (
        r'{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}',
        '{"\\r":2,"1":4,"\u0080":6,"ö":7,"€":1,"😀":5,"\ufb33":3}',
    ),
    ('{"peach":"x","péché":"y","pêche":"z","sin":"w"}', '{"peach":"x","péché":"y","pêche":"z","sin":"w"}'),
    ('[56,{"d":true,"10":null,"1":[]}]', '[56,{"1":[],"10":null,"d":true}]'),
]


def double(bits: str) -> float:
    return struct.unpack(">d", bytes.fromhex(bits))[0]


@pytest.mark.parametrize(("bits", "text"), APPENDIX_B)
def test_a_double_is_written_as_ecmascript_writes_it(bits: str, text: str) -> None:
    assert number_text(double(bits)) == text
    assert canonical_json(double(bits)) == text.encode()


@pytest.mark.parametrize(("source", "canonical"), GOLDEN)
def test_the_golden_texts_of_rfc_8785_come_out_byte_by_byte(source: str, canonical: str) -> None:
    assert canonical_json(json.loads(source)) == canonical.encode()


@pytest.mark.parametrize("exponent", range(-324, 309))
def test_powers_of_ten_agree_with_an_independent_implementation(exponent: int) -> None:
    for number in (float(f"1e{exponent}"), float(f"-1.5e{exponent}") if exponent < 308 else -1.0):
        assert canonical_json(number) == rfc8785.dumps(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_double_agrees_with_an_independent_implementation(number: float) -> None:
    assert canonical_json(number) == rfc8785.dumps(number)


finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
# Few names from the two areas whose UTF-8 and UTF-16 orders differ, so that they meet in one object.
name = text | st.sampled_from(["\ue000", "\ufffd", "\U00010000", "😀", "", "a\ufb33", "a\U0001f600"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-EXACT_INTEGER_MAX, EXACT_INTEGER_MAX) | finite | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(name, inner, max_size=5),
    max_leaves=20,
)


@given(json_values)
def test_any_json_value_agrees_with_an_independent_implementation(value: Any) -> None:
    assert canonical_json(value) == rfc8785.dumps(value)


@given(json_values)
def test_canonical_text_reads_back_and_is_its_own_canonical_form(value: Any) -> None:
    once = canonical_json(value)
    assert canonical_json(json.loads(once)) == once


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_of_64_bits_keep_every_digit(number: int) -> None:
    assert canonical_json([number]) == f"[{number}]".encode()


@given(finite)
def test_the_integer_spelling_of_a_large_double_is_accepted_again(number: float) -> None:
    canonical = canonical_json(number)
    assert canonical_json(json.loads(canonical)) == canonical


@pytest.mark.parametrize(
    "number", [2**64, -(2**63) - 1, 10**20 + 1, 10**400, -(10**5000)], ids=lambda number: f"{number.bit_length()} bits"
)
def test_other_integers_beyond_64_bits_are_refused(number: int) -> None:
    with pytest.raises(NotCanonicalError) as refusal:
        canonical_json({"n": number})
    assert refusal.value.reason == "integer_range"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    with pytest.raises(NotCanonicalError) as refusal:
        canonical_json([number])
    assert refusal.value.reason == "not_finite"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_the_text_of_a_number_that_is_not_finite_does_not_exist(number: float) -> None:
    with pytest.raises(ValueError, match="infinite"):
        number_text(number)


@pytest.mark.parametrize("value", ["\ud835", {"\udc00": 1}, ["a\ud800b"]])
def test_half_a_surrogate_pair_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonicalError) as refusal:
        canonical_json(value)
    assert refusal.value.reason == "surrogate"


class Tag(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value", [{1: 2}, {None: 1}, {1, 2}, b"bytes", dt.datetime.now(dt.UTC), object(), Tag("subclass"), {"a": 1j}]
)
def test_what_is_no_json_value_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonicalError) as refusal:
        canonical_json(value)
    assert refusal.value.reason == "not_json"


@pytest.mark.parametrize("depth", [255, 100_000])
def test_nesting_that_cannot_be_written_is_refused(depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    with pytest.raises(NotCanonicalError) as refusal:
        canonical_json(value)
    assert refusal.value.reason == "depth"


def test_the_deepest_nesting_is_written() -> None:
    value: Any = 1
    for _ in range(254):
        value = [value]
    assert canonical_json(value) == b"[" * 254 + b"1" + b"]" * 254


def test_tuples_are_written_as_lists() -> None:
    assert canonical_json(({"b": 1, "a": (1.0,)},)) == b'[{"a":[1],"b":1}]'


def test_strings_are_not_normalized() -> None:
    assert canonical_json(["e\u0301", "\u00e9"]) == '["e\u0301","\u00e9"]'.encode()


@given(st.dictionaries(name, st.integers(0, 9), max_size=5))
def test_an_order_that_is_called_sure_is_the_order_of_rfc_8785(members: dict[str, int]) -> None:
    canonical = rfc8785.dumps(members)
    if not is_order_unsure(canonical):
        assert list(in_utf16_order(members)) == sorted(members)
