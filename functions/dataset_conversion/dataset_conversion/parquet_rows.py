"""Decodes a Parquet file that passed inspection, a few rows at a time, and writes its rows canonically.

Runs in a process whose memory and time are bounded, because the decoder may be made to ask for any amount of either.
"""

import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from records.canonical_rows import CanonicalRows
from records.json_pointer import write_pointer
from records.limits import Limits
from records.manifest import Notes
from records.row_assembly import ReadyRow, RowAssembly, RowRefusedError
from records.row_errors import ErrorCollector
from records.row_fields import RowProblem

from dataset_conversion.column_rows import AlikeRows, ColumnRows, ColumnText
from dataset_conversion.column_texts import Array
from dataset_conversion.column_values import Converter, ConverterFactory, ValueProblemError, find_invalid_text
from dataset_conversion.json_text import JsonTextReader
from dataset_conversion.parquet_pages import Inspection
from dataset_conversion.parquet_refusal import ParquetRefusedError, corrupt
from dataset_conversion.parquet_schema import PhysicalType

# pandas stores its row labels as a column.
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_BATCH_ROWS, _BATCH_ROWS_AMPLIFIED, _BATCH_ROWS_FEW = 1024, 256, 16
_AMPLIFYING_BYTES, _AMPLIFYING_BYTES_MUCH = 128 * 1024, 16 * 1024 * 1024
_BATCH_VALUES = 262_144
_COMBINED_BYTES = 1024 * 1024
_BATCHES_BETWEEN_RELEASES = 4
_DECODED_FACTOR = 4
# What Arrow raises for a batch that has to go row by row: damage has its place there, and texts are not joined.
_LEFT_TO_ROWS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError)


def convert_parquet_rows(
    buffer: Any,
    inspection: Inspection,
    write: Callable[[bytes], object],
    *,
    mapping: Mapping[str, str] | None,
    nul: Literal["refuse", "replace"],
    limits: Limits,
) -> tuple[CanonicalRows, Notes]:
    """Check the rows of a Parquet file and write the canonical ones.

    Parameters
    ----------
    buffer
        The whole file.
    inspection
        What `dataset_conversion.parquet_pages.inspect_parquet` said about it.
    write, mapping, nul, limits
        See `dataset_conversion.conversion.convert`.

    Returns
    -------
    tuple of CanonicalRows and Notes
        What was written, and what was accepted and changed.

    Raises
    ------
    DatasetInvalidError
        Rows are refused.
    ParquetRefusedError
        The file is refused as a whole.
    records.row_fields.MappingInvalidError
        `mapping` makes no sense.
    """
    return _RowConversion(inspection, write, mapping, nul, limits).run(buffer)


class _Column(NamedTuple):
    name: str
    converter: Converter | None
    """``None`` when the column is left out."""


class _Part(NamedTuple):
    column: _Column
    array: Array


class _RowConversion:
    def __init__(
        self,
        inspection: Inspection,
        write: Callable[[bytes], object],
        mapping: Mapping[str, str] | None,
        nul: Literal["refuse", "replace"],
        limits: Limits,
    ) -> None:
        self._inspection = inspection
        self._limits = limits
        self._errors = ErrorCollector(limits.errors)
        self._rows = CanonicalRows(write, self._errors, limits)
        self._assembly = RowAssembly(mapping)
        self._json_reader = JsonTextReader(nul)
        self._nul: Literal["refuse", "replace"] = nul
        self._column_rows: dict[tuple[str, ...], ColumnRows | None] = {}
        self._factories: list[ConverterFactory] = []

    def run(self, buffer: Any) -> tuple[CanonicalRows, Notes]:
        try:
            file = _open(buffer)
            columns = self._make_columns(file.schema_arrow)
            count = 0
            for number, batch in enumerate(self._read_batches(file, columns, buffer), 1):
                self._convert_batch(batch, count)
                count += len(batch[0].array)
                if number % _BATCHES_BETWEEN_RELEASES == 0 and isinstance(buffer, mmap.mmap):
                    # What was read of the file need not stay in memory; what is read again comes back by itself.
                    buffer.madvise(mmap.MADV_DONTNEED)
        except (pa.ArrowMemoryError, MemoryError):
            raise _too_large("the rows need more memory than a decoder may have") from None
        except pa.ArrowNotImplementedError as error:
            message = f"the file uses what the decoder does not know ({_shorten(error)})"
            raise ParquetRefusedError("unsupported_type", message) from None
        except (pa.ArrowException, OSError, UnicodeDecodeError, ValueError, OverflowError) as error:
            raise corrupt(_shorten(error)) from None
        if count != self._inspection.rows:
            raise corrupt(f"{count} of {self._inspection.rows} rows can be decoded")
        self._errors.raise_if_any()
        notes = msgspec.structs.replace(
            self._rows.make_notes(self._assembly.unmatched_mapping),
            replaced_nuls=self._json_reader.replaced_nuls + sum(factory.replaced_nuls for factory in self._factories),
            dropped_columns=[column.name for column in columns if column.converter is None],
            zoneless_columns=[field.name for field in file.schema_arrow if _is_zoneless(field.type)],
        )
        return self._rows, notes

    def _make_columns(self, schema: Any) -> list[_Column]:
        factory = ConverterFactory(self._inspection.leaves, self._nul, self._json_reader, self._limits.depth)
        self._factories.append(factory)
        columns: list[_Column] = []
        for field in schema:
            converter = factory.make((field.name,), field.type)
            columns.append(_Column(field.name, None if _PANDAS_INDEX.fullmatch(field.name) else converter))
        factory.check_exhausted()
        return columns

    def _read_batches(self, file: Any, columns: list[_Column], buffer: Any) -> Iterator[list[_Part]]:
        size = self._batch_rows()
        batches = file.iter_batches(batch_size=size, use_threads=False)
        if not any(leaf.physical_type is PhysicalType.INT96 for leaf in self._inspection.leaves):
            for batch in _combine(batches) if size < _BATCH_ROWS else batches:
                yield [_Part(column, array) for column, array in zip(columns, batch.columns, strict=True)]
            return
        # INT96 reaches further than nanoseconds of 64 bits do, and the decoder wraps around silently. Microseconds do
        # not wrap; where the two agree, the nanoseconds are right.
        coarse_file = _open(buffer, coerce_int96_timestamp_unit="us")
        coarse_columns = self._make_columns(coarse_file.schema_arrow)
        coarse_batches = coarse_file.iter_batches(batch_size=size, use_threads=False)
        for batch, coarse in zip(batches, coarse_batches, strict=True):
            parts = map(_Part, columns, batch.columns)
            coarse_parts = map(_Part, coarse_columns, coarse.columns)
            yield [_choose_int96(part, coarse_part) for part, coarse_part in zip(parts, coarse_parts, strict=True)]

    def _batch_rows(self) -> int:
        inspection = self._inspection
        if inspection.amplifying_bytes <= _AMPLIFYING_BYTES:
            rows = _BATCH_ROWS
        else:
            is_much = inspection.amplifying_bytes > _AMPLIFYING_BYTES_MUCH
            rows = _BATCH_ROWS_FEW if is_much else _BATCH_ROWS_AMPLIFIED
        return max(1, min(rows, _BATCH_VALUES // max(1, inspection.values // inspection.rows)))

    def _convert_batch(self, parts: list[_Part], before: int) -> None:
        self._check_decoded_size(parts)
        if self._add_alike(before + 1, parts):
            return
        problems: dict[int, list[RowProblem]] = {}
        names: list[str] = []
        columns: list[list[Any]] = []
        for (name, converter), array in parts:
            if converter is not None:
                names.append(name)
                columns.append(_read_column(name, converter, array, problems))
        ready_rows: list[ReadyRow] = []
        for position, row in enumerate(zip(*columns, strict=True)):
            members = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            ready = self._assemble(before + position + 1, members, problems.get(position, []))
            if ready is not None:
                ready_rows.append(ready)
        self._rows.add(ready_rows)

    def _add_alike(self, first: int, parts: list[_Part]) -> bool:
        """Add the rows of a batch if what becomes of its columns is the same for all of them."""
        try:
            alike = self._write_alike(parts)
        except (ValueProblemError, orjson.JSONEncodeError, *_LEFT_TO_ROWS):
            return False
        if alike is None:
            return False
        self._rows.add_alike(first, alike.record_ids, alike.piece, alike.origin)
        return True

    def _write_alike(self, parts: list[_Part]) -> AlikeRows | None:
        columns: dict[str, ColumnText] = {}
        for (name, converter), array in parts:
            if converter is not None:
                array.validate(full=True)
                column = ColumnText.of(converter, array)
                if column.null_count < len(array):
                    columns[name] = column
        names = tuple(columns)
        if names not in self._column_rows:
            plan = self._assembly.plan(dict.fromkeys(names, True))
            self._column_rows[names] = ColumnRows(plan) if plan.is_straight(names) else None
        rows = self._column_rows[names]
        return None if rows is None else rows.write_all(columns)

    def _assemble(self, number: int, members: dict[str, Any], problems: list[RowProblem]) -> ReadyRow | None:
        try:
            ready = self._assembly.assemble(number, members)
        except RowRefusedError as error:
            at_fault = {problem.field for problem in problems}
            self._rows.note(number, problems)
            self._rows.note(number, [problem for problem in error.problems if problem.field not in at_fault])
            if error.record_id is not None:
                self._rows.reserve_id(number, error.record_id, error.id_pointer)
            return None
        except orjson.JSONEncodeError:
            message = f"lists and structs are nested more than {self._limits.depth} deep: flatten the row"
            self._rows.note(number, [*problems, RowProblem(None, "depth", message)])
            return None
        if not problems:
            return ready
        self._rows.note(number, problems)
        if ready.record_id is not None:
            self._rows.reserve_id(number, ready.record_id, ready.origin.id_pointer)
        return None

    def _check_decoded_size(self, parts: list[_Part]) -> None:
        limits = self._limits
        rows = len(parts[0].array)
        decoded = sum(array.nbytes for _, array in parts)
        if decoded > _DECODED_FACTOR * limits.output_bytes:
            raise _too_large(f"{rows} rows have {decoded} bytes once decoded")
        least = sum(column.converter.least_bytes(array) for column, array in parts if column.converter is not None)
        if least > rows * limits.row_bytes:
            raise _too_large(f"a row has more than {limits.row_bytes} bytes, the limit of a row")
        if self._rows.bytes + least > limits.output_bytes:
            raise _too_large(f"the rows have more than {limits.output_bytes} bytes, the limit of a dataset")


def _open(buffer: Any, **options: Any) -> Any:
    return pq.ParquetFile(
        pa.BufferReader(buffer),
        pre_buffer=False,
        page_checksum_verification=True,
        arrow_extensions_enabled=False,
        **options,
    )


def _combine(batches: Iterable[Any]) -> Iterator[Any]:
    """Put small batches together that were decoded apart, because what they decode to could have been large."""
    held: list[Any] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if size > _COMBINED_BYTES or rows > _BATCH_ROWS - held[0].num_rows:
            yield pa.concat_batches(held)
            held.clear()
            rows = size = 0
    if held:
        yield pa.concat_batches(held)


def _read_column(name: str, converter: Converter, array: Array, problems: dict[int, list[RowProblem]]) -> list[Any]:
    """Return the values of a column; where one cannot be read, note why and return ``None`` in its place."""
    try:
        array.validate(full=True)
        return array.to_pylist() if converter.is_plain(array) else converter.values(array)
    except (ValueProblemError, pa.ArrowInvalid):
        values: list[Any] = []
    for position in range(len(array)):
        part = array.slice(position, 1)
        try:
            _check_valid(part)
            values += converter.values(part)
        except ValueProblemError as problem:
            field = write_pointer([name, *problem.path])
            problems.setdefault(position, []).append(RowProblem(field, problem.reason, problem.message))
            values.append(None)
        except pa.ArrowInvalid as error:
            message = f"the file is damaged: {_shorten(error)}"
            problems.setdefault(position, []).append(RowProblem(write_pointer([name]), "parquet_corrupt", message))
            values.append(None)
    return values


def _check_valid(part: Array) -> None:
    try:
        part.validate(full=True)
    except pa.ArrowInvalid as error:
        # Only where nothing but text is wrong can offsets be followed.
        if "UTF8" not in str(error) and "UTF-8" not in str(error):
            raise
        path = find_invalid_text(part)
        if path is not None:
            raise ValueProblemError("not_utf8", "a text is not UTF-8", path) from None


def _too_large(what: str) -> ParquetRefusedError:
    return ParquetRefusedError("decoded_too_large", f"the file is small, but not what it decodes to: {what}")


def _shorten(error: BaseException) -> str:
    # The decoder's messages name columns, offsets and sizes; only the beginning is of use.
    return f"{str(error).splitlines()[0][:160]}" if str(error) else type(error).__name__


def _is_zoneless(data_type: Any) -> bool:
    return pa.types.is_timestamp(data_type) and data_type.tz is None


def _choose_int96(fine: _Part, coarse: _Part) -> _Part:
    if fine.array.type == coarse.array.type:
        return fine
    try:
        is_right = fine.array.cast(coarse.array.type, safe=False).equals(coarse.array)
    except pa.ArrowNotImplementedError:
        is_right = False
    return fine if is_right else coarse
