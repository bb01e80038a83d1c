"""Rows of one shape: read and written by types made for them, and still as each of them would be alone."""

import json
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from dataset_conversion.conversion import DatasetInvalidError, convert
from dataset_conversion.row_shapes import Shape, ShapelessError, TypeMaker
from dataset_conversion.shaped_rows import ShapedRows
from hypothesis import given, settings
from hypothesis import strategies as st

type Places = list[tuple[int | None, str | None, str]]


class Trickle(BytesIO):
    """A file that comes in pieces of a few rows."""

    def __init__(self, source: bytes, piece: int) -> None:
        super().__init__(source)
        self._piece = piece

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or self._piece, self._piece))


def outcome(source: bytes, piece: int = 1 << 20) -> bytes | Places:
    written = BytesIO()
    try:
        convert(Trickle(source, piece), "jsonl", written.write)
    except DatasetInvalidError as refusal:
        return [(error.row, error.field, error.reason) for error in refusal.errors]
    return written.getvalue()


def outcome_alone(lines: list[bytes]) -> bytes | Places:
    published: list[bytes] = []
    refused: Places = []
    for number, line in enumerate(lines, 1):
        one = outcome(line)
        if isinstance(one, bytes):
            published.append(one)
        else:
            refused += [(number, field, reason) for _, field, reason in one]
    return refused[:20] or b"".join(published)


@pytest.fixture
def shaped_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many rows each call of the reader for one shape has taken."""
    calls: list[int] = []
    convert_rows = ShapedRows.convert

    def count(self: ShapedRows, lines: list[bytes]) -> tuple[list[str], bytes]:
        converted = convert_rows(self, lines)
        calls.append(len(lines))
        return converted

    monkeypatch.setattr(ShapedRows, "convert", count)
    return calls


def make_lines(count: int, make: Callable[[int], dict[str, Any]]) -> list[bytes]:
    return [json.dumps({"id": f"row {n}"} | make(n), ensure_ascii=False).encode() + b"\n" for n in range(count)]


# --- what it takes, it writes as the general way does
def test_most_rows_of_a_regular_file_are_read_by_their_shape(shaped_calls: list[int]) -> None:
    lines = make_lines(200, lambda n: {"question": {"b": n, "a": [str(n)]}, "answer": "é\n", "tags": [], "x": n / 7})
    assert outcome(b"".join(lines), 900) == outcome_alone(lines)
    assert sum(shaped_calls) > 150


MAKERS: list[Callable[[int], dict[str, Any]]] = [
    lambda n: {"input": "q", "score": [0.0, 1.0, -0.0, 0.5, 1e21, 1e-6, 1e-7, 123456789012345680000.0][n % 8]},
    lambda n: {"input": "q", "metadata": {"n": [2**63, 2**64 - 1, 0.25, -(2**63), None][n % 5]}},
    lambda n: {"input": "q", "metadata": {"n": 1.5} if n % 3 else {}},
    lambda n: {"input": n % 2 == 0, "context": [None, "x"][: n % 3], "tags": [[], [[]], [["a"]]][n % 3]},
    lambda n: {"input": [{"role": "user", "content": str(n)}, {"role": "tool"}][: n % 3], "expected": None},
    lambda n: {"input": "q", "metadata": {"a": {"b": {"c": n / 3}}}, "z": 0.5},
    lambda n: {"prompt": "q", "metadata": {"\ufb33": 1, "\U0001f600": 2, "": 3}, "\ue000": n, "a:b": "c:d"},
    lambda n: {"input": 'a "quoted" \\ text \u2028 \x7f', "metadata": {'"': 1, "\\": n}},
    lambda n: {"input": "q", "vector": [n / 3, 1.0, -0.0, n, 1e21][n % 5 :]},
    lambda n: {"input": "q", "metadata": {"v": [0.25, None, [n / 3], [], [2**64 - 1, 1e-6]][n % 5]}},
    lambda n: {"input": [[n / 3, 2.0]], "metadata": {"a": [{"b": 0.5}]}},
    lambda n: {"input": "q", "metadata": {f"k{n}": n}},
]


@pytest.mark.parametrize("make", MAKERS)
def test_rows_come_out_as_each_would_alone(make: Callable[[int], dict[str, Any]]) -> None:
    lines = make_lines(120, make)
    whole = outcome_alone(lines)
    assert isinstance(whole, bytes)
    assert outcome(b"".join(lines), 500) == whole


names = st.sampled_from(["role", "content", "a", "a:b", "é", "\ufb33", "\U0001f600", "n", ""])
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
type Values = st.SearchStrategy[Any]
kinds: st.SearchStrategy[Values] = st.sampled_from(
    [
        *(texts, st.booleans(), st.none(), st.integers(-9, 9), numbers, st.sampled_from([0.0, 0.5, 1.0])),
        st.lists(st.integers(-9, 9) | st.sampled_from([0.0, 0.5, 1e300, 2**64 - 1]), max_size=3),
    ]
)


def list_of(kind: Values) -> Values:
    return st.lists(kind, max_size=2)


def either(one: Values, other: Values) -> Values:
    return one | other


def object_of(members: dict[str, Values]) -> Values:
    return st.fixed_dictionaries(members)


def object_with_some_of(members: dict[str, Values]) -> Values:
    return st.fixed_dictionaries({}, optional=members)


def nest(inner: st.SearchStrategy[Values]) -> st.SearchStrategy[Values]:
    members = st.dictionaries(names, inner, max_size=3)
    return (
        st.builds(list_of, inner)
        | st.builds(either, inner, inner)
        | members.map(object_of)
        | members.map(object_with_some_of)
    )


values = st.recursive(kinds, nest, max_leaves=5)
"""Strategies for values of one shape."""


@st.composite
def regular_files(draw: st.DrawFn) -> list[bytes]:
    members = draw(st.dictionaries(st.sampled_from(["question", "expected", "tags", "x", "reference"]), values))
    metadata = draw(st.none() | st.dictionaries(names, values, max_size=3).map(object_of))
    row = {"input": draw(values)} | members | ({} if metadata is None else {"metadata": metadata})
    lines = make_lines(draw(st.integers(8, 20)), lambda _: draw(st.fixed_dictionaries(row)))
    if draw(st.booleans()):
        odd = draw(
            st.sampled_from(
                [b'{"id":"o","input":1,"input":1}\n', b'{"id":"o"}\n', b"\n", b'{"id":7,"input":1e999}\n', b"{}{}\n"]
            )
        )
        lines.insert(draw(st.integers(0, len(lines))), odd)
    return lines


@settings(max_examples=150, deadline=None)
@given(regular_files(), st.integers(60, 400))
def test_files_of_any_shape_come_out_as_their_rows_alone(lines: list[bytes], piece: int) -> None:
    alone = [line for line in lines if line.strip()]
    together = outcome(b"".join(lines), piece)
    expected = outcome_alone(alone)
    if isinstance(expected, bytes):
        assert together == expected
    else:
        assert isinstance(together, list)
        assert [place[1:] for place in together] == [place[1:] for place in expected]


# --- what is new in a row is found
PLAIN = '{"id":"%d","input":{"a":"q","n":1},"x":[1],"y":0.5}\n'


@pytest.mark.parametrize(
    ("bad", "field", "reason"),
    [
        ('{"id":"z","input":{"a":"q","n":1},"x":[1],"y":0.5,"y":0.5}', "/y", "duplicate_key"),
        ('{"id":"z","input":{"a":"q","n":1,"n":1},"x":[1],"y":0.5}', "/input/n", "duplicate_key"),
        (r'{"id":"z","input":{"a":"q","\u0061":"\u003a","n":1},"x":[1],"y":0.5}', "/input/a", "duplicate_key"),
        ('{"id":"z","input":{"a":"q","n":1},"x":[1],"y":1e999}', "/y", "not_finite"),
        ('{"id":"z","input":{"a":"q","n":1},"x":[1],"y":NaN}', "/y", "not_finite"),
        ('{"id":"z","input":{"a":"q","n":18446744073709551616},"x":[1],"y":0.5}', "/input/n", "integer_range"),
        ('{"id":"z","input":{"a":"q","n":1},"x":[1],"y":18446744073709551617}', "/y", "integer_range"),
        ('{"id":"z","input":{"a":"q","n":1},"x":[-9223372036854775809],"y":0.5}', "/x/0", "integer_range"),
        (r'{"id":"z","input":{"a":"\ud800","n":1},"x":[1],"y":0.5}', "/input/a", "surrogate"),
        (r'{"id":"z","input":{"a":"\u0000","n":1},"x":[1],"y":0.5}', "/input/a", "nul"),
        ('{"id":1.0,"input":{"a":"q","n":1},"x":[1],"y":0.5}', "/id", "invalid_id"),
        ('{"id":"9","input":{"a":"q","n":1},"x":[1],"y":0.5}', "/id", "duplicate_id"),
        ('{"id":"z","input":{"a":"q","n":1},"x":[1],"y":0.5', None, "not_json"),
        ('{"id":"z","input":{"a":"q","n":1},"x":[1],"y":0.5}{}', None, "not_json"),
        ('{"id":"z","input":{"a":"q","n":1},"x":' + "[" * 64 + "]" * 64 + ',"y":0.5}', None, "depth"),
    ],
)
def test_a_bad_row_among_rows_of_one_shape_is_refused_at_its_place(
    bad: str, field: str | None, reason: str, shaped_calls: list[int]
) -> None:
    before = "".join(PLAIN % n for n in range(100))
    after = "".join(PLAIN % n for n in range(100, 120))
    assert outcome((before + bad + "\n" + after).encode(), 600) == [(101, field, reason)]
    assert sum(shaped_calls) > 60


def test_an_integer_beyond_64_bits_among_fractions_in_a_list_is_refused(shaped_calls: list[int]) -> None:
    before = "".join(f'{{"id":"{n}","input":[0.5,{n}]}}\n' for n in range(100))
    bad = '{"id":"z","input":[0.5,18446744073709551617]}\n'
    assert outcome((before + bad).encode(), 300) == [(101, "/input/1", "integer_range")]
    assert sum(shaped_calls) > 60


def test_a_file_without_pattern_has_no_shape() -> None:
    shape = Shape()
    with pytest.raises(ShapelessError):
        shape.add({str(n): n for n in range(1000)})


def test_fractions_that_no_attribute_leads_to_have_no_shape() -> None:
    shape = Shape()
    shape.add([{"a": 0.5}])
    with pytest.raises(ShapelessError):
        TypeMaker().make(shape, ("x",))


def test_names_that_json_escapes_have_no_shape() -> None:
    shape = Shape()
    shape.add({"a\nb": 1})
    with pytest.raises(ShapelessError):
        TypeMaker().make(shape, None)
