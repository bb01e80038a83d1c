"""The canonical object: shard borders, limits, what is written and what is not."""

import pytest
from records.canonical_rows import SHARD_BYTES_MAX, CanonicalRows
from records.limits import Limits
from records.manifest import ShardStart
from records.row_assembly import ReadyRow, RowOrigin
from records.row_errors import DatasetInvalidError, ErrorCollector, RowError
from records.row_fields import RowProblem

ORIGIN = RowOrigin("/id", 0, ())


def ready(number: int, text: bytes = b"{}", record_id: str | None = None) -> ReadyRow:
    return ReadyRow(number, text, record_id or f"id {number}", ORIGIN)


def rows_with(limits: Limits | None = None) -> tuple[CanonicalRows, list[bytes], ErrorCollector]:
    limits = limits or Limits()
    written: list[bytes] = []
    errors = ErrorCollector(limits.errors)
    return CanonicalRows(written.append, errors, limits), written, errors


@pytest.mark.parametrize("piece", [1, 7, 999, 1000, 1001, 2500])
def test_a_shard_begins_at_every_thousandth_row(piece: int) -> None:
    rows, written, _ = rows_with()
    for start in range(0, 2500, piece):
        rows.add([ready(number) for number in range(start + 1, min(2500, start + piece) + 1)])
    assert rows.shards == [ShardStart(0, 0), ShardStart(3000, 1000), ShardStart(6000, 2000)]
    assert (rows.records, rows.bytes) == (2500, 7500)
    assert b"".join(written) == b"{}\n" * 2500


@pytest.mark.parametrize("piece", [1, 2, 3, 7])
def test_a_shard_has_at_most_8_mib(piece: int) -> None:
    rows, written, _ = rows_with()
    text = b"x" * (3 * 1024 * 1024)
    for start in range(0, 7, piece):
        rows.add([ready(number, text) for number in range(start + 1, min(7, start + piece) + 1)])
    assert [shard.record for shard in rows.shards] == [0, 2, 4, 6]
    whole = b"".join(written)
    for shard, following in zip(rows.shards, [*rows.shards[1:], ShardStart(len(whole), 7)], strict=True):
        assert following.offset - shard.offset <= SHARD_BYTES_MAX
        assert whole[shard.offset : following.offset].count(b"\n") == following.record - shard.record


def test_an_id_is_put_where_it_belongs() -> None:
    rows, written, _ = rows_with()
    rows.add([ReadyRow(1, b'{"context":[],"input":1}', None, ORIGIN, len(b'{"context":[],'))])
    text = b"".join(written)
    assert text.startswith(b'{"context":[],"id":"r-')
    assert text.endswith(b'","input":1}\n')
    assert rows.make_notes([]).derived_ids == 1


def test_changes_are_counted() -> None:
    rows, _, _ = rows_with()
    origin = RowOrigin("/id", 0, ("question -> input", "integer id", "text context"))
    rows.add_alike(1, ["1", "2"], b"{}\n{}\n", origin)
    rows.add([ReadyRow(3, b"{}", "3", origin)])
    notes = rows.make_notes(["reference"])
    assert (notes.aliases, notes.integer_ids, notes.text_contexts) == ({"question -> input": 3}, 3, 3)
    assert notes.unmatched_mapping == ["reference"]


def test_after_an_error_nothing_more_is_written_and_checking_goes_on() -> None:
    rows, written, errors = rows_with()
    rows.add([ready(1, record_id="a")])
    rows.add_alike(2, ["a", "b"], b"{}\n{}\n", ORIGIN)
    rows.note(4, [RowProblem("/x", "nul", "…")])
    rows.reserve_id(4, "b", "/id")
    assert written == [b"{}\n"]
    with pytest.raises(DatasetInvalidError) as refusal:
        errors.raise_if_any()
    assert [(error.row, error.reason) for error in refusal.value.errors] == [
        (2, "duplicate_id"),
        (4, "nul"),
        (4, "duplicate_id"),
    ]


def test_one_record_too_many_is_refused_with_its_row() -> None:
    rows, _, _ = rows_with(Limits(records=3))
    with pytest.raises(DatasetInvalidError) as refusal:
        rows.add([ready(number) for number in range(1, 5)])
    (error,) = refusal.value.errors
    assert (error.row, error.reason) == (4, "too_many_records")
    assert "3" in error.message


def test_exactly_as_many_records_as_allowed_are_taken() -> None:
    rows, _, _ = rows_with(Limits(records=3))
    rows.add([ready(number) for number in range(1, 4)])
    assert rows.records == 3


def test_a_canonical_row_over_the_limit_is_refused_with_limit_and_size() -> None:
    rows, _, errors = rows_with(Limits(row_bytes=10))
    rows.add([ready(1, b"x" * 10), ready(2, b"x" * 11)])
    with pytest.raises(DatasetInvalidError) as refusal:
        errors.raise_if_any()
    (error,) = refusal.value.errors
    assert (error.row, error.reason) == (2, "row_too_large")
    assert "11 bytes" in error.message
    assert "10 bytes" in error.message


def test_an_object_over_the_limit_is_refused_at_the_row_that_passes_it() -> None:
    rows, _, _ = rows_with(Limits(output_bytes=8))
    rows.add([ready(1)])
    with pytest.raises(DatasetInvalidError) as refusal:
        rows.add([ready(2), ready(3)])
    (error,) = refusal.value.errors
    assert (error.row, error.reason) == (3, "too_large")
    assert "9 bytes" in error.message
    assert "8 bytes" in error.message


class TestErrorCollector:
    def test_it_ends_with_the_last_error_to_look_for(self) -> None:
        errors = ErrorCollector(2)
        errors.add(RowError(2, None, "nul", ""))
        with pytest.raises(DatasetInvalidError) as refusal:
            errors.add(RowError(1, None, "nul", ""))
        assert [error.row for error in refusal.value.errors] == [1, 2]

    def test_it_is_silent_about_nothing(self) -> None:
        ErrorCollector(1).raise_if_any()

    def test_a_refusal_needs_an_error(self) -> None:
        with pytest.raises(ValueError, match="at least one"):
            DatasetInvalidError([])
