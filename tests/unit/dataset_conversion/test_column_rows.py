"""Rows that are put together by columns: the same that come out one by one."""

import math
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rfc8785
from dataset_conversion.column_rows import ColumnRows
from dataset_conversion.column_texts import join, write_floats, write_strings
from dataset_conversion.parquet_pages import inspect_parquet
from dataset_conversion.parquet_refusal import ParquetRefusedError
from dataset_conversion.parquet_rows import convert_parquet_rows
from hypothesis import given, settings
from hypothesis import strategies as st
from records.limits import Limits
from records.manifest import Notes
from records.row_errors import DatasetInvalidError

# pyarrow's stubs do not know most of its functions.
arrow: Any = pa
parquet: Any = pq

type Outcome = tuple[bytes, Notes] | list[tuple[int | None, str | None, str]]


def convert(table: Any, **options: Any) -> Outcome:
    source = BytesIO()
    parquet.write_table(table, source, **options)
    content = source.getvalue()
    written = BytesIO()
    try:
        _, notes = convert_parquet_rows(
            content, inspect_parquet(content, Limits()), written.write, mapping=None, nul="refuse", limits=Limits()
        )
    except DatasetInvalidError as refusal:
        return [(error.row, error.field, error.reason) for error in refusal.errors]
    except ParquetRefusedError as refusal:
        return [(None, refusal.field, refusal.reason)]
    return written.getvalue(), notes


def take_none(_rows: ColumnRows, _columns: Any) -> None:
    """Leave all rows to the general way."""


def convert_one_by_one(table: Any) -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ColumnRows, "write_all", take_none)
        return convert(table)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=4) | st.sampled_from(
    ['"', "\\", "\\n", "\x01\x1f", "\n\r\t\b\f", "\u2028", "\x7f", "\U0001f600", "a\x00"]
)
floats = st.floats() | st.sampled_from([0.0, -0.0, 1.0, 0.5, 1e10, -1e10, 9999999999.5, 1e-6, 1e21, 1e22, 5e-324])
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (arrow.string(), texts),
    (arrow.large_string(), texts),
    (arrow.dictionary(arrow.int32(), arrow.string()), texts),
    (arrow.int64(), st.integers(-(2**63), 2**63 - 1)),
    (arrow.uint64(), st.integers(0, 2**64 - 1)),
    (arrow.int8(), st.integers(-128, 127)),
    (arrow.bool_(), st.booleans()),
    (arrow.float64(), floats),
    (arrow.float32(), st.floats(width=32)),
    (arrow.timestamp("us"), st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)),
    (arrow.date32(), st.integers(-719_162, 2_932_896)),
    (arrow.decimal128(9, 3), st.decimals(-999, 999, places=3)),
    (arrow.binary(), st.binary(max_size=3)),
    (arrow.null(), st.none()),
]
names = st.sampled_from(["a", "b", "é", "\ufb33", "\U0001f600", "a.b", ""])


@st.composite
def columns(draw: st.DrawFn, depth: int = 3) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type, and a strategy for its values."""
    kind = draw(st.sampled_from(["leaf", "leaf", "list", "struct", "map"])) if depth else "leaf"
    if kind == "leaf":
        data_type, value = draw(st.sampled_from(LEAVES))
    elif kind == "list":
        item_type, item = draw(columns(depth - 1))
        is_large = draw(st.booleans())
        data_type, value = (arrow.large_list if is_large else arrow.list_)(item_type), st.lists(item, max_size=3)
    elif kind == "struct":
        members = draw(st.dictionaries(names, columns(depth - 1), min_size=1, max_size=3))
        data_type = arrow.struct([(name, member) for name, (member, _) in members.items()])
        value = st.fixed_dictionaries({name: member for name, (_, member) in members.items()})
    else:
        item_type, item = draw(columns(0))
        data_type, value = arrow.map_(arrow.string(), item_type), st.lists(st.tuples(texts, item), max_size=2)
    return data_type, st.none() | value if draw(st.booleans()) else value


@st.composite
def tables(draw: st.DrawFn) -> Any:
    size = draw(st.integers(1, 6))
    chosen = draw(
        st.dictionaries(
            st.sampled_from(["question", "expected", "context", "metadata", "output", "reference", "x", "y"]),
            columns(),
            max_size=4,
        )
    )
    given_ids = [f"{draw(texts)}{n}" for n in range(size)]
    ids = draw(st.sampled_from([given_ids, [f"row {n}" for n in range(size)], list(range(size))]))
    arrays: dict[str, Any] = {"id": arrow.array(ids)}
    if draw(st.booleans()):
        arrays["input"] = arrow.array(["q"] * size)
    for name, (data_type, value) in chosen.items():
        arrays[name] = arrow.array([draw(value) for _ in range(size)], data_type)
    return arrow.table(arrays)


@settings(max_examples=80, deadline=None)
@given(tables())
def test_rows_come_out_the_same_by_columns_and_one_by_one(table: Any) -> None:
    assert convert(table) == convert_one_by_one(table)


def test_rows_of_a_regular_table_are_written_by_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    write_all = ColumnRows.write_all

    def count(self: ColumnRows, columns: Any) -> Any:
        alike = write_all(self, columns)
        taken.append(alike is not None)
        return alike

    monkeypatch.setattr(ColumnRows, "write_all", count)
    rows = [
        {
            "id": f"row-{n}",
            "question": {"messages": [{"role": "user", "content": f'"{n}"\n'}] * (n % 3)},
            "context": ["a", "b"][: n % 3],
            "metadata": {"score": n / 4, "ok": n % 2 == 0, "at": None if n % 5 else "x"},
            "tags": [str(n)] if n % 2 else None,
            "reference": None if n % 7 else str(n),
        }
        for n in range(3000)
    ]
    whole = convert(arrow.Table.from_pylist(rows), row_group_size=700)
    assert taken == [True] * 3
    assert isinstance(whole, tuple)
    assert whole[0].splitlines()[2] == (
        b'{"context":["a","b"],"id":"row-2","input":{"messages":[{"content":"\\"2\\"\\n","role":"user"},'
        b'{"content":"\\"2\\"\\n","role":"user"}]},"metadata":{"ok":true,"score":0.5}}'
    )


def test_every_character_is_escaped_as_rfc_8785_says() -> None:
    strings = [chr(code) for code in range(1, 0x3000)] + ["\U0001f600", '\\"\n', ""]
    text = write_strings(arrow.array(strings))
    assert text is not None
    assert [one.encode() for one in join(text).to_pylist()] == list(map(rfc8785.dumps, strings))


def test_a_part_of_an_array_is_written_without_what_lies_around_it() -> None:
    text = write_strings(arrow.array(["\x00", 'a"', "b", "\x00"]).slice(1, 2))
    assert text is not None
    assert join(text).to_pylist() == [r'"a\""', '"b"']


@given(st.lists(st.floats(-1e10, 1e10, exclude_min=True, exclude_max=True), min_size=1))
def test_numbers_are_written_as_rfc_8785_says(numbers: list[float]) -> None:
    numbers = [number for number in numbers if math.copysign(1, number) > 0 or number]
    texts = write_floats(arrow.array(numbers, arrow.float64()))
    assert texts is not None
    assert [text.encode() for text in texts.to_pylist()] == list(map(rfc8785.dumps, numbers))


@pytest.mark.parametrize("number", [-0.0, 1e10, -1e10, math.inf, -math.inf, math.nan])
def test_numbers_that_arrow_writes_otherwise_are_left_to_others(number: float) -> None:
    assert write_floats(arrow.array([0.5, number])) is None
