"""What becomes of every Arrow and Parquet type, and of rows that cannot be published."""

import datetime as dt
import decimal
import json
import struct
import uuid
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_conversion.column_values import shortest_half, write_duration
from dataset_conversion.conversion import convert
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


def write(table: Any, **options: Any) -> bytes:
    sink = BytesIO()
    parquet.write_table(table, sink, **options)
    return sink.getvalue()


def publish_file(source: bytes, **options: Any) -> tuple[bytes, Notes]:
    limits = options.pop("limits", Limits())
    written = BytesIO()
    inspection = inspect_parquet(source, limits)
    options = {"mapping": None, "nul": "refuse"} | options
    _, notes = convert_parquet_rows(source, inspection, written.write, limits=limits, **options)
    return written.getvalue(), notes


def publish(table: Any, **options: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in publish_file(write(table), **options)[0].splitlines()]


def values_of(column: Any, **options: Any) -> list[Any]:
    """Publish a column as metadata; return its values, ``None`` where it is absent."""
    table = arrow.table({"id": [str(n) for n in range(len(column))], "input": ["q"] * len(column), "x": column})
    return [row.get("metadata", {}).get("x") for row in publish(table, **options)]


def refuse(table: Any, **options: Any) -> list[tuple[int | None, str | None, str]]:
    with pytest.raises((DatasetInvalidError, ParquetRefusedError)) as refusal:
        publish(table, **options)
    if isinstance(refusal.value, ParquetRefusedError):
        return [(None, refusal.value.field, refusal.value.reason)]
    return [(error.row, error.field, error.reason) for error in refusal.value.errors]


def refuse_column(column: Any) -> list[tuple[int | None, str | None, str]]:
    return refuse(arrow.table({"id": [str(n) for n in range(len(column))], "input": ["q"] * len(column), "x": column}))


UTC = dt.UTC
NOON = dt.datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (arrow.array(["a", None, ""]), ["a", None, ""]),
        (arrow.array(["a", "b"], arrow.large_string()), ["a", "b"]),
        (arrow.array(["a", "b"], arrow.string_view()), ["a", "b"]),
        (arrow.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (arrow.array([True, None, False]), [True, None, False]),
        (arrow.array([-128, 127], arrow.int8()), [-128, 127]),
        (arrow.array([0, 2**64 - 1], arrow.uint64()), [0, 2**64 - 1]),
        (arrow.array([-(2**63), 2**63 - 1], arrow.int64()), [-(2**63), 2**63 - 1]),
        (arrow.array([0.1, 1.0, None, 1e21, 1e-6], arrow.float64()), [0.1, 1, None, 1e21, 1e-6]),
        (arrow.array([0.1, 16777216.0, 3e-7], arrow.float32()), [0.1, 16777216, 3e-7]),
        (arrow.array([None, None]), [None, None]),
        (arrow.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]), ["0001-01-01", "9999-12-31"]),
        (arrow.array([dt.time(1, 2, 3), dt.time(0, 0, 0, 120000)]), ["01:02:03", "00:00:00.12"]),
        (arrow.array([1, 100], arrow.time32("s")), ["00:00:01", "00:01:40"]),
        (arrow.array([1, 10], arrow.time64("ns")), ["00:00:00.000000001", "00:00:00.00000001"]),
        (arrow.array([NOON], arrow.timestamp("us", "UTC")), ["2026-11-30T12:00:00Z"]),
        (arrow.array([NOON], arrow.timestamp("ms", "Europe/Berlin")), ["2026-11-30T12:00:00Z"]),
        (arrow.array([1], arrow.timestamp("ns", "UTC")), ["1970-01-01T00:00:00.000000001Z"]),
        (arrow.array([-1], arrow.timestamp("ns")), ["1969-12-31T23:59:59.999999999Z"]),
        (arrow.array([5, -5, 90_061_500], arrow.duration("ms")), ["PT0.005S", "-PT0.005S", "PT90061.5S"]),
        (arrow.array([b"\x00\xff", b""], arrow.binary()), ["AP8=", ""]),
        (arrow.array([b"ab"], arrow.binary(2)), ["YWI="]),
        (arrow.array([b"\x01"], arrow.large_binary()), ["AQ=="]),
        (arrow.array([decimal.Decimal("1.50")], arrow.decimal128(5, 2)), ["1.50"]),
        (arrow.array([decimal.Decimal("1E-20")], arrow.decimal128(38, 20)), ["0.00000000000000000001"]),
        (arrow.array([decimal.Decimal(-7)], arrow.decimal256(60, 3)), ["-7.000"]),
        (arrow.array([[1, None], [], None]), [[1, None], [], None]),
        (arrow.array([[1.0, 0.5]], arrow.list_(arrow.float64(), 2)), [[1, 0.5]]),
        (arrow.array([["a"]], arrow.large_list(arrow.string())), [["a"]]),
        (arrow.array([{"a": 1, "b": None}, {"a": None, "b": None}, None]), [{"a": 1}, {}, None]),
        (arrow.array([[{"a": None}, None]]), [[{}, None]]),
        (arrow.array([{"a": {"b": [{"c": dt.date(2026, 1, 2)}]}}]), [{"a": {"b": [{"c": "2026-01-02"}]}}]),
    ],
)
def test_values_of_each_type(column: Any, values: list[Any]) -> None:
    assert values_of(column) == values


@pytest.mark.parametrize(
    ("pairs", "value"),
    [
        ([("k", 1), ("l", None)], {"k": 1, "l": None}),
        ([("k", 1), ("k", 2)], [["k", 1], ["k", 2]]),
        ([], {}),
        (None, None),
    ],
)
def test_a_map_is_an_object_where_its_keys_are_unique_texts(pairs: Any, value: Any) -> None:
    column = arrow.array([[("x", 0)], pairs, [("y", 0)]], arrow.map_(arrow.string(), arrow.int64()))
    assert values_of(column) == [{"x": 0}, value, {"y": 0}]


def test_a_map_with_other_keys_is_a_list_of_pairs() -> None:
    assert values_of(arrow.array([[(1, "x")]], arrow.map_(arrow.int32(), arrow.string()))) == [[[1, "x"]]]


def test_a_uuid_is_written_as_one() -> None:
    value = uuid.UUID("12345678-1234-5678-1234-567812345678")
    assert values_of(arrow.array([value.bytes], arrow.uuid())) == [str(value)]


def test_json_texts_are_parsed_with_the_rules_of_jsonl() -> None:
    column = arrow.ExtensionArray.from_storage(arrow.json_(), arrow.array(['{"b":1.0,"a":[null]}', None, "7"]))
    assert values_of(column) == [{"a": [None], "b": 1}, None, 7]


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("{", "/x", "not_json"),
        ('{"a":1,"a":2}', "/x/a", "duplicate_key"),
        ('{"a~":[1,NaN]}', "/x/a~0/1", "not_finite"),
        ('"\\u0000"', "/x", "nul"),
        ("[" * 99, "/x", "depth"),
    ],
)
def test_a_bad_json_text_is_refused_at_its_place(text: str, place: str, reason: str) -> None:
    column = arrow.ExtensionArray.from_storage(arrow.json_(), arrow.array(["1", text]))
    assert refuse_column(column) == [(2, place, reason)]


@pytest.mark.parametrize(
    ("values", "data_type", "place"),
    [
        ([{"k": 1.0}, {"k": float("nan")}], arrow.map_(arrow.string(), arrow.float64()), "/x/k"),
        ([[("k", 1.0), ("k", float("nan"))]], arrow.map_(arrow.string(), arrow.float64()), "/x/1/1"),
        ([[(7, float("nan"))]], arrow.map_(arrow.int32(), arrow.float64()), "/x/0/1"),
        (
            [[{"a": 1.0}], [{"a": 1.0}, {"a": float("inf")}]],
            arrow.list_(arrow.struct([("a", arrow.float64())])),
            "/x/1/a",
        ),
        (
            [{"m": {"k/": [1.0, float("nan")]}}],
            arrow.struct([("m", arrow.map_(arrow.string(), arrow.list_(arrow.float64())))]),
            "/x/m/k~1/1",
        ),
    ],
)
def test_a_value_inside_another_is_refused_at_its_exact_place(values: Any, data_type: Any, place: str) -> None:
    column = arrow.array(values, data_type)
    assert refuse_column(column) == [(len(values), place, "not_finite")]


def test_text_inside_of_lists_and_structs_that_is_not_utf_8_is_refused_at_its_exact_place() -> None:
    as_bytes = arrow.array([[{"t": b"good"}], [{"t": b"good"}, {"t": b"\xff"}]])
    column = arrow.array([[{"t": "good"}], [{"t": "good"}, {"t": "x"}]])
    texts = arrow.StructArray.from_arrays([as_bytes.values.field(0).view(arrow.string())], names=["t"])
    column = arrow.ListArray.from_arrays(as_bytes.offsets, texts)
    assert refuse_column(column) == [(2, "/x/1/t", "not_utf8")]


def nest(levels: int) -> Any:
    value: Any = "leaf"
    for _ in range(levels):
        value = {"a": value}
    return value


def test_columns_are_nested_as_deep_as_rows_of_jsonl_and_come_out_importable() -> None:
    table = arrow.table({"input": ["q"], "x": [nest(63)]})
    written, _ = publish_file(write(table))
    again = BytesIO()
    convert(written, "jsonl", again.write)
    assert again.getvalue() == written
    assert refuse(arrow.table({"input": ["q"], "x": [nest(64)]})) == [(None, "/x", "depth")]


def test_json_texts_below_structs_count_the_levels_above_them() -> None:
    def column(text: str) -> Any:
        texts = arrow.ExtensionArray.from_storage(arrow.json_(), arrow.array([text]))
        return arrow.StructArray.from_arrays([texts], names=["s"])

    assert len(values_of(column("[" * 62 + "]" * 62))) == 1
    assert refuse_column(column("[" * 63 + "]" * 63)) == [(1, "/x/s", "depth")]


def test_int96_timestamps_keep_nanoseconds_and_do_not_wrap() -> None:
    near = arrow.table({"id": ["a"], "input": ["q"], "x": arrow.array([1], arrow.timestamp("ns"))})
    far = arrow.table({"id": ["a"], "input": ["q"], "x": arrow.array([221_845_392_000], arrow.timestamp("s"))})
    source = write(near, use_deprecated_int96_timestamps=True)
    assert json.loads(publish_file(source)[0])["metadata"]["x"] == "1970-01-01T00:00:00.000000001Z"
    source = write(far, use_deprecated_int96_timestamps=True)
    assert json.loads(publish_file(source)[0])["metadata"]["x"] == "9000-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("column", "errors"),
    [
        (arrow.array([1.0, float("nan"), float("inf")]), [(2, "/x", "not_finite"), (3, "/x", "not_finite")]),
        (arrow.array([float("-inf")], arrow.float32()), [(1, "/x", "not_finite")]),
        (arrow.array([{"a": [0.5, float("nan")]}]), [(1, "/x/a/1", "not_finite")]),
        (arrow.array(["a", "b\x00"]), [(2, "/x", "nul")]),
        (arrow.array([["a", "b\x00"]]), [(1, "/x/1", "nul")]),
        (arrow.array([253_402_300_800], arrow.timestamp("s")), [(1, "/x", "timestamp_range")]),
        (arrow.array([-62_135_596_801_000], arrow.timestamp("ms", "UTC")), [(1, "/x", "timestamp_range")]),
        (arrow.array([2_932_897], arrow.date32()), [(1, "/x", "timestamp_range")]),
    ],
)
def test_a_value_that_json_cannot_say_is_refused_at_its_place(column: Any, errors: list[Any]) -> None:
    assert refuse_column(column) == errors


def test_text_that_is_not_utf_8_is_refused_at_its_row() -> None:
    offsets, data = arrow.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0])), arrow.py_buffer(b"a\xff")
    column = arrow.Array.from_buffers(arrow.string(), 2, [None, offsets, data])
    assert refuse_column(column) == [(2, "/x", "not_utf8")]


def test_nul_characters_are_replaced_on_request() -> None:
    assert values_of(arrow.array(["a\x00", "b"]), nul="replace") == ["a\ufffd", "b"]


def test_a_column_that_occurs_twice_is_refused() -> None:
    table = arrow.Table.from_arrays([arrow.array(["a"])] * 3, names=["id", "input", "input"])
    assert refuse(table) == [(None, "/input", "duplicate_column")]


def test_the_pandas_index_is_dropped_and_noted() -> None:
    table = arrow.table({"id": ["a"], "input": ["q"], "__index_level_0__": [7]})
    written, notes = publish_file(write(table))
    assert (written, notes.dropped_columns) == (b'{"id":"a","input":"q"}\n', ["__index_level_0__"])


def test_timestamps_without_a_zone_are_noted() -> None:
    table = arrow.table({"id": ["a"], "input": ["q"], "x": arrow.array([0], arrow.timestamp("s"))})
    assert publish_file(write(table))[1].zoneless_columns == ["x"]


def test_errors_name_the_column_as_the_sender_has_it() -> None:
    table = arrow.table({"key": [1.5], "question": ["q"], "contexts": [7]})
    assert refuse(table, mapping={"id": "key"}) == [(1, "/contexts", "invalid_field"), (1, "/key", "invalid_id")]


def test_row_numbers_go_on_from_batch_to_batch() -> None:
    ids = [str(n) for n in range(3000)]
    ids[2500] = "7"
    table = arrow.table({"id": ids, "input": ids})
    assert refuse(table) == [(2501, "/id", "duplicate_id")]


def test_a_checksum_that_does_not_hold_is_refused() -> None:
    source = bytearray(
        write(arrow.table({"id": ["a" * 50], "input": ["q"]}), write_page_checksum=True, compression="none")
    )
    source[source.index(b"a" * 50)] = ord("b")
    with pytest.raises(ParquetRefusedError) as refusal:
        publish_file(bytes(source))
    assert refusal.value.reason == "parquet_corrupt"


def test_a_row_that_is_too_large_is_refused() -> None:
    table = arrow.table({"id": ["a", "b"], "input": ["q", "x" * 1000]})
    assert refuse(table, limits=Limits(row_bytes=900)) == [(2, None, "row_too_large")]


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5)
typed_columns = st.sampled_from(
    [
        ("text", text),
        ("number", st.floats(allow_nan=False, allow_infinity=False)),
        ("count", st.integers(-(2**63), 2**63 - 1)),
        ("flag", st.booleans()),
        ("tags", st.lists(text, max_size=3)),
        ("about", st.fixed_dictionaries({"a": text}, optional={"b": st.integers(0, 9), "c": st.floats(0, 1)})),
        ("context", st.lists(text, max_size=2)),
        ("metadata", st.fixed_dictionaries({"k": text}, optional={"text": text})),
        ("question", text),
        ("expected", st.integers(0, 3)),
    ]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(typed_columns, unique_by=lambda column: column[0], max_size=6), st.integers(1, 6), st.data())
def test_the_same_content_has_the_same_rows_in_both_formats(
    columns: list[tuple[str, st.SearchStrategy[Any]]], count: int, data: st.DataObject
) -> None:
    rows: list[dict[str, Any]] = [{"id": str(number)} for number in range(count)]
    for name, strategy in columns:
        for row in rows:
            if data.draw(st.sampled_from([True, True, True, False])):
                row[name] = data.draw(strategy)
    is_input_there = data.draw(st.booleans())
    for row in rows:
        if is_input_there or "question" not in row:
            row["input"] = "q"
    source = write(arrow.Table.from_pylist(rows, schema=_schema_of(rows)))
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert outcome(lambda: publish_file(source)[0]) == outcome(lambda: publish_lines(lines))


def publish_lines(lines: bytes) -> bytes:
    written = BytesIO()
    convert(lines, "jsonl", written.write)
    return written.getvalue()


def outcome(publish: Callable[[], bytes]) -> bytes | list[tuple[int | None, str]]:
    try:
        return publish()
    except DatasetInvalidError as refusal:
        return [(error.row, error.reason) for error in refusal.errors]


def _schema_of(rows: list[dict[str, Any]]) -> Any:
    names = dict.fromkeys(name for row in rows for name in row)
    types = {
        "number": arrow.float64(),
        "count": arrow.int64(),
        "flag": arrow.bool_(),
        "expected": arrow.int8(),
        "tags": arrow.list_(arrow.string()),
        "context": arrow.list_(arrow.string()),
        "about": arrow.struct({"a": arrow.string(), "b": arrow.int32(), "c": arrow.float64()}),
        "metadata": arrow.struct({"k": arrow.string(), "text": arrow.string()}),
    }
    return arrow.schema([(name, types.get(name, arrow.string())) for name in names])


@pytest.mark.parametrize(
    ("count", "unit", "written"),
    [(0, "s", "PT0S"), (1, "s", "PT1S"), (-1, "us", "-PT0.000001S"), (10**9 + 1, "ns", "PT1.000000001S")],
)
def test_durations_are_iso_8601(count: int, unit: str, written: str) -> None:
    assert write_duration(count, unit) == written


@given(st.floats(width=16, allow_nan=False, allow_infinity=False))
def test_half_precision_numbers_get_the_shortest_text_that_reads_back(number: float) -> None:
    shortest = shortest_half(number)
    # Zero of either sign is written as 0.
    assert struct.pack("<e", shortest + 0.0) == struct.pack("<e", number + 0.0)
    assert len(repr(shortest)) <= len(repr(number))


def test_half_precision_columns_are_published_shortest() -> None:
    halves = arrow.array([0.1, 1.0], arrow.float32()).cast(arrow.float16())
    assert values_of(halves) == [0.1, 1]
