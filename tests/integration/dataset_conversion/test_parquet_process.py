"""The process around the decoder: its bounds, its end, and what becomes of both."""

import os
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dataset_conversion import parquet_process
from dataset_conversion.conversion import DatasetInvalidError, convert
from records.limits import Limits
from records.row_errors import RowError
from records.row_fields import MappingInvalidError

CASES = Path(__file__).parents[2] / "cases"
PLAIN = (CASES / "datasets" / "p01_plain.parquet").read_bytes()


def refuse(source: bytes, limits: Limits) -> RowError:
    with pytest.raises(DatasetInvalidError) as refusal:
        convert(source, "parquet", BytesIO().write, limits=limits)
    (error,) = refusal.value.errors
    return error


def test_a_decoder_that_takes_too_long_is_a_refusal() -> None:
    error = refuse(PLAIN, Limits(decoder_seconds=0.001, decoder_seconds_per_mib=0))
    assert error.reason == "decoded_too_large"
    assert "0.001 seconds" in error.message


def test_a_decoder_without_memory_is_a_refusal() -> None:
    error = refuse(PLAIN, Limits(decoder_address_space_bytes=96 * 1024 * 1024))
    assert error.reason in {"decoded_too_large", "parquet_corrupt"}


def test_a_file_without_columns_is_a_refusal() -> None:
    file = BytesIO()
    pq.write_table(pa.table({}), file)
    assert refuse(file.getvalue(), Limits()).reason == "empty"


def test_rows_of_no_columns_are_a_refusal_and_keep_nobody_busy() -> None:
    file = BytesIO()
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 10, type=pa.struct([])))
    pq.write_table(pa.Table.from_batches([batch]), file)
    assert refuse(file.getvalue(), Limits()).reason == "empty"


def test_a_decoder_that_crashes_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_process, "_MODULE", "antigravity_that_does_not_exist")
    assert refuse(PLAIN, Limits()).reason == "decoded_too_large"


def test_a_mapping_that_makes_no_sense_is_told_as_such() -> None:
    with pytest.raises(MappingInvalidError, match="question"):
        convert(PLAIN, "parquet", BytesIO().write, mapping={"question": "x"})


def list_children() -> set[str]:
    """Return the ids of this process's children, those that ended and were not waited for included."""
    listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {pid for children in listed for pid in children.read_text().split()}


def test_when_rows_cannot_be_written_the_decoder_ends_too() -> None:
    class FullDiskError(OSError):
        pass

    def fail(_: bytes) -> None:
        raise FullDiskError

    before = list_children()
    with pytest.raises(FullDiskError):
        convert(PLAIN, "parquet", fail)
    assert list_children() <= before


@pytest.mark.parametrize(
    ("source", "reason", "word"),
    [
        (b"", "empty", "empty"),
        (b'{"id":"a"}\n', "wrong_format", "format=jsonl"),
        (b"PK\x03\x04" + b"x" * 20, "wrong_format", "ZIP"),
        (b"hello world, this is no Parquet", "wrong_format", "PAR1"),
    ],
)
def test_a_file_of_another_kind_is_recognized(source: bytes, reason: str, word: str) -> None:
    error = refuse(source, Limits())
    assert error.reason == reason
    assert word in error.message


def test_a_file_over_the_limit_is_refused_before_it_is_decoded() -> None:
    error = refuse(PLAIN, Limits(input_bytes=100))
    assert error.reason == "too_large"
    assert "100 bytes" in error.message


def test_source_bytes_and_shards_come_back() -> None:
    conversion = convert(PLAIN, "parquet", BytesIO().write)
    assert conversion.source_bytes == len(PLAIN)
    assert [(shard.offset, shard.record) for shard in conversion.shards] == [(0, 0)]
