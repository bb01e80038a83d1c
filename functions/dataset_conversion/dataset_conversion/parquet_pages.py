"""What a Parquet file claims about itself, checked before anything in it is decompressed or decoded.

The footer and the header of every page are read; sizes, counts and offsets have to agree with each other and with the
file. No library does this: decoders believe the footer, allocate what a header claims, and read files that a column
names. What headers cannot show (a dictionary value used a million times) is left to the bounds of the process that
decodes.

Source of the rules: parquet.thrift of the Apache Parquet format.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NoReturn, cast

from records.limits import Limits

from dataset_conversion.compact_protocol import CompactReader, Fields, MalformedError
from dataset_conversion.parquet_refusal import ParquetRefusedError, corrupt
from dataset_conversion.parquet_schema import Leaf, PhysicalType, read_leaves

_MAGIC, _ENCRYPTED_MAGIC = b"PAR1", b"PARE"
_TAIL_BYTES = 8
_FOOTER_ELEMENTS_MAX = 1_000_000
_HEADER_ELEMENTS_MAX = 512
_HEADER_BYTES_MAX = 64 * 1024
_PAGES_MAX = 65_536
# A value takes at least two bytes of canonical text, so that more than these cannot be published.
_PAGE_VALUES_MAX = 2 * 1024 * 1024
# Pages of so many times the output's limit cannot hold less than it, once dictionaries and padding are discounted.
_DECOMPRESSED_FACTOR = 4


class _PageType(IntEnum):
    DATA = 0
    INDEX = 1
    DICTIONARY = 2
    DATA_V2 = 3


_UNCOMPRESSED: Final = 0
# Tuples: a malformed value may be a struct, which no set takes.
_CODECS = (0, 1, 2, 4, 5, 6, 7)
_PLAIN, _PLAIN_DICTIONARY, _RLE, _BIT_PACKED, _DELTA_BYTE_ARRAY = 0, 2, 3, 4, 7
_DATA_ENCODINGS = (0, 2, 3, 5, 6, 7, 8, 9)


@dataclass(slots=True)
class Chunk:
    """The pages of one column in one row group."""

    row_group: int
    leaf: Leaf
    start: int
    length: int
    codec: int
    values: int
    rows: int
    dictionary_bytes: int = 0
    prefix_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Inspection:
    """What is known of a file whose headers hold together.

    Parameters
    ----------
    rows
        Rows that it claims to have.
    leaves
        Its columns.
    values
        Values in all columns, nulls counted.
    amplifying_bytes
        Bytes in one row group that a decoder may repeat in every row: dictionaries, and pages whose values share
        prefixes.
    """

    rows: int
    leaves: list[Leaf]
    values: int
    amplifying_bytes: int


def inspect_parquet(buffer: bytes | memoryview, limits: Limits) -> Inspection:
    """Check the footer and every page header of a file.

    Parameters
    ----------
    buffer
        The whole file.
    limits
        Bounds on rows, columns, row groups, pages and nesting.

    Raises
    ------
    ParquetRefusedError
        Something does not hold, or passes a limit.
    """
    try:
        return _Inspector(buffer, limits).run()
    except MalformedError as error:
        raise corrupt(f"its footer or a page header cannot be read ({error})") from None


class _Inspector:
    def __init__(self, buffer: bytes | memoryview, limits: Limits) -> None:
        self._buffer = buffer
        self._limits = limits
        self._pages = 0
        self._decompressed = 0

    def run(self) -> Inspection:
        footer, footer_start = self._read_footer()
        leaves = read_leaves(_structs(footer, 2, "schema"), self._limits)
        rows = _integer(footer, 3, "number of rows")
        if not rows and not footer.get(4):
            raise ParquetRefusedError("empty", "the file has no rows")
        row_groups = _structs(footer, 4, "row groups")
        self._check_rows(rows)
        if len(row_groups) > self._limits.row_groups:
            message = f"the file has {len(row_groups)} row groups; the limit is {self._limits.row_groups}: merge them"
            raise ParquetRefusedError("too_large", message)
        chunks = self._read_chunks(row_groups, leaves, footer_start)
        if sum(_integer(row_group, 3, "rows of a row group") for row_group in row_groups) != rows:
            raise corrupt("its row groups do not have as many rows as the file")
        if not rows:
            raise ParquetRefusedError("empty", "the file has no rows")
        values = sum(chunk.values for chunk in chunks)
        if values > self._limits.output_bytes // 2:
            message = (
                f"the columns have {values} values, nulls counted; at most {self._limits.output_bytes // 2} can be "
                "decoded: split the file"
            )
            raise ParquetRefusedError("decoded_too_large", message)
        amplifying = [0] * len(row_groups)
        for chunk in chunks:
            self._walk_pages(chunk)
            amplifying[chunk.row_group] += chunk.dictionary_bytes + chunk.prefix_bytes
        return Inspection(rows, leaves, values, max(amplifying, default=0))

    def _read_footer(self) -> tuple[Fields, int]:
        buffer, size = self._buffer, len(self._buffer)
        if size < len(_MAGIC) + _TAIL_BYTES:
            raise corrupt(f"{size} bytes are too few")
        head, tail = bytes(buffer[:4]), bytes(buffer[-4:])
        if _ENCRYPTED_MAGIC in {head, tail}:
            _refuse_encryption()
        if tail != _MAGIC or head != _MAGIC:
            raise corrupt("it does not end with PAR1, a part seems to be missing")
        length = int.from_bytes(buffer[size - _TAIL_BYTES : size - 4], "little")
        start = size - _TAIL_BYTES - length
        if start < len(_MAGIC):
            raise corrupt("its footer is longer than the file")
        reader = CompactReader(buffer, start, size - _TAIL_BYTES, _FOOTER_ELEMENTS_MAX)
        footer = reader.read_struct()
        if 8 in footer or 9 in footer:
            _refuse_encryption()
        if reader.position != size - _TAIL_BYTES:
            raise corrupt("bytes follow its footer")
        return footer, start

    def _check_rows(self, rows: int) -> None:
        if rows < 0:
            raise corrupt("its number of rows is negative")
        if rows > self._limits.records:
            message = f"the file has {rows} rows; the limit is {self._limits.records}: split the file"
            raise ParquetRefusedError("too_many_records", message)

    def _read_chunks(self, row_groups: list[Fields], leaves: list[Leaf], footer_start: int) -> list[Chunk]:
        chunks: list[Chunk] = []
        for position, row_group in enumerate(row_groups):
            rows = _integer(row_group, 3, "rows of a row group")
            self._check_rows(rows)
            columns = _structs(row_group, 1, "columns of a row group")
            if len(columns) != len(leaves):
                raise corrupt("a row group does not have the columns of the schema")
            for column, leaf in zip(columns, leaves, strict=True):
                chunk = self._read_chunk(column, leaf, position, rows)
                if not rows and not chunk.values:
                    continue
                if chunk.start < len(_MAGIC) or chunk.start + chunk.length > footer_start:
                    raise corrupt("a column lies outside of the file", leaf.pointer)
                chunks.append(chunk)
        end = 0
        for chunk in sorted(chunks, key=lambda chunk: chunk.start):
            if chunk.length and chunk.start < end:
                raise corrupt("columns overlap", chunk.leaf.pointer)
            end = max(end, chunk.start + chunk.length)
        return chunks

    def _read_chunk(self, column: Fields, leaf: Leaf, row_group: int, rows: int) -> Chunk:
        if column.get(1):
            message = "a column lies in another file: write the dataset into one file"
            raise ParquetRefusedError("parquet_external", message, leaf.pointer)
        if 8 in column or 9 in column:
            _refuse_encryption(leaf.pointer)
        about = column.get(3)
        if type(about) is not dict:
            raise corrupt("a column has no description", leaf.pointer)
        about = cast("Fields", about)
        if about.get(1) != leaf.physical_type:
            raise corrupt("a column is not of the type that the schema says", leaf.pointer)
        if about.get(3) != [name.encode() for name in leaf.path]:
            raise corrupt("the columns are not in the order of the schema", leaf.pointer)
        codec = about.get(4)
        if codec not in _CODECS:
            message = f"compression codec {codec} is not supported: use Snappy, Zstandard, gzip, Brotli or LZ4"
            raise ParquetRefusedError("unsupported_type", message, leaf.pointer)
        values = _integer(about, 5, "values of a column")
        decompressed = _integer(about, 6, "size of a column")
        length = _integer(about, 7, "size of a column")
        if values < 0 or length < 0 or decompressed < 0:
            raise corrupt("a column has a negative size", leaf.pointer)
        if (values != rows) if not leaf.repetition_max else (values < rows):
            raise corrupt(f"a column has {values} values in {rows} rows", leaf.pointer)
        start = _integer(about, 9, "offset of a column")
        dictionary = about.get(11)
        if type(dictionary) is int and 0 < dictionary < start:
            start = dictionary
        return Chunk(row_group, leaf, start, length, cast("int", codec), values, rows)

    def _walk_pages(self, chunk: Chunk) -> None:
        position, end = chunk.start, chunk.start + chunk.length
        values = 0
        is_first = True
        while position < end:
            self._pages += 1
            if self._pages > _PAGES_MAX:
                message = f"the file has more than {_PAGES_MAX} pages: write larger pages"
                raise ParquetRefusedError("too_large", message)
            reader = CompactReader(self._buffer, position, min(end, position + _HEADER_BYTES_MAX), _HEADER_ELEMENTS_MAX)
            header = reader.read_struct()
            compressed, decompressed = self._check_page_sizes(header, chunk, end - reader.position)
            values += self._check_page(header, chunk, compressed, decompressed, is_first=is_first)
            if values > chunk.values:
                raise corrupt("the pages of a column hold more values than it has", chunk.leaf.pointer)
            position = reader.position + compressed
            is_first = False
        if values != chunk.values:
            raise corrupt("the pages of a column hold fewer values than it has", chunk.leaf.pointer)

    def _check_page_sizes(self, header: Fields, chunk: Chunk, room: int) -> tuple[int, int]:
        decompressed = _integer(header, 2, "size of a page")
        compressed = _integer(header, 3, "size of a page")
        pointer = chunk.leaf.pointer
        if compressed < 0 or decompressed < 0:
            raise corrupt("a page has a negative size", pointer)
        limit = self._limits.page_bytes
        if max(compressed, decompressed) > limit:
            message = (
                f"the column {'.'.join(chunk.leaf.path)!r} has a page of {max(compressed, decompressed)} bytes; the "
                f"limit is {limit} bytes: write smaller pages or smaller row groups (DuckDB: ROW_GROUP_SIZE, "
                "pyarrow: data_page_size or row_group_size)"
            )
            raise ParquetRefusedError("parquet_page", message, pointer)
        if compressed > room:
            raise corrupt("a page is longer than its column", pointer)
        if chunk.codec == _UNCOMPRESSED and compressed != decompressed:
            raise corrupt("a page without compression has two sizes", pointer)
        self._decompressed += decompressed
        if self._decompressed > _DECOMPRESSED_FACTOR * self._limits.output_bytes:
            message = (
                f"the pages have more than {_DECOMPRESSED_FACTOR * self._limits.output_bytes} bytes once decompressed, "
                "the limit: split the file"
            )
            raise ParquetRefusedError("decoded_too_large", message)
        return compressed, decompressed

    def _check_page(self, header: Fields, chunk: Chunk, compressed: int, decompressed: int, *, is_first: bool) -> int:
        """Check the part of a header that depends on the page's type; return how many values the page adds."""
        pointer = chunk.leaf.pointer
        if sum(field_id in header for field_id in (5, 6, 7, 8)) != 1:
            raise corrupt("a page header does not say what the page is", pointer)
        match header.get(1):
            case _PageType.DATA:
                values = self._check_data_page(_struct(header, 5, pointer), chunk)
            case _PageType.DATA_V2:
                values = self._check_data_page_v2(_struct(header, 8, pointer), chunk, min(compressed, decompressed))
            case _PageType.DICTIONARY:
                if not is_first:
                    raise corrupt("a dictionary does not come first", pointer)
                self._check_dictionary(_struct(header, 7, pointer), chunk, decompressed)
                return 0
            case other:
                raise corrupt(f"a page is of the unknown type {other}", pointer)
        if values > _PAGE_VALUES_MAX:
            message = f"a page holds {values} values; the limit is {_PAGE_VALUES_MAX}: write smaller pages"
            raise ParquetRefusedError("parquet_page", message, pointer)
        encoding = _struct(header, 5 if 5 in header else 8, pointer).get(2 if 5 in header else 4)
        if encoding not in _DATA_ENCODINGS:
            raise corrupt("a page has an unknown encoding", pointer)
        if encoding == _DELTA_BYTE_ARRAY:
            chunk.prefix_bytes = max(chunk.prefix_bytes, decompressed)
        # Only where nothing can be absent does each value take its width.
        if encoding == _PLAIN and not chunk.leaf.definition_max and values * chunk.leaf.width > decompressed:
            raise corrupt("a page claims more values than it has bytes", pointer)
        return values

    def _check_data_page(self, page: Fields, chunk: Chunk) -> int:
        pointer = chunk.leaf.pointer
        levels = (_RLE, _BIT_PACKED)
        has_definitions, has_repetitions = bool(chunk.leaf.definition_max), bool(chunk.leaf.repetition_max)
        if (has_definitions and page.get(3) not in levels) or (has_repetitions and page.get(4) not in levels):
            raise corrupt("a page has an unknown encoding", pointer)
        return _count(page, 1, pointer)

    def _check_data_page_v2(self, page: Fields, chunk: Chunk, room: int) -> int:
        pointer = chunk.leaf.pointer
        values, nulls, rows = _count(page, 1, pointer), _count(page, 2, pointer), _count(page, 3, pointer)
        levels = _count(page, 5, pointer) + _count(page, 6, pointer)
        if nulls > values or rows > values or levels > room:
            raise corrupt("the counts of a page contradict each other", pointer)
        if not chunk.leaf.repetition_max and rows != values:
            raise corrupt("a page has more values than rows in a column that repeats nothing", pointer)
        return values

    def _check_dictionary(self, page: Fields, chunk: Chunk, decompressed: int) -> None:
        pointer = chunk.leaf.pointer
        values = _count(page, 1, pointer)
        if page.get(2) not in (_PLAIN, _PLAIN_DICTIONARY):
            raise corrupt("a dictionary has an unknown encoding", pointer)
        if values * chunk.leaf.width > decompressed:
            raise corrupt("a dictionary claims more values than it has bytes", pointer)
        if chunk.leaf.physical_type in {PhysicalType.BYTE_ARRAY, PhysicalType.FIXED_LEN_BYTE_ARRAY}:
            chunk.dictionary_bytes = decompressed


def _refuse_encryption(field: str | None = None) -> NoReturn:
    message = "the file or a column is encrypted: write it without encryption"
    raise ParquetRefusedError("parquet_encrypted", message, field)


def _structs(fields: Fields, field_id: int, what: str) -> list[Fields]:
    value = fields.get(field_id)
    if type(value) is not list or not all(type(item) is dict for item in cast("list[Any]", value)):
        raise corrupt(f"it has no {what}")
    return cast("list[Fields]", value)


def _struct(fields: Fields, field_id: int, pointer: str) -> Fields:
    value = fields.get(field_id)
    if type(value) is not dict:
        raise corrupt("a page header does not say what the page is", pointer)
    return cast("Fields", value)


def _integer(fields: Fields, field_id: int, what: str) -> int:
    value = fields.get(field_id)
    if type(value) is not int:
        raise corrupt(f"it has no {what}")
    return value


def _count(fields: Fields, field_id: int, pointer: str) -> int:
    value = fields.get(field_id)
    if type(value) is not int or value < 0:
        raise corrupt("a page header has an impossible count", pointer)
    return value
