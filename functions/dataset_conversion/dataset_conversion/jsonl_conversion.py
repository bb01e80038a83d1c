r"""JSONL to canonical rows.

Each row is read by a fast reader (msgspec), its members are arranged, and it is written by a fast writer (orjson) whose
member order and number format were made those of RFC 8785. What these two let through although it must be refused shows
in three counts that cost little: a duplicate name leaves fewer colons in the written row than in the line, an escaped
NUL or colon begins with ``\u00``, and nesting needs an opening bracket or a colon for each level. A row with one of
these signs, or one that a reader refuses, is read again by a reader that is slow and exact.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import repeat
from operator import add, sub
from typing import Any, Literal

import msgspec
import orjson
from records.canonical_json import NotCanonicalError, is_order_unsure
from records.canonical_rows import CanonicalRows
from records.field_types import name_kind
from records.limits import Limits
from records.manifest import Notes
from records.row_assembly import ReadyRow, RowAssembly, RowRefusedError
from records.row_errors import ErrorCollector, Reason, RowError
from records.row_fields import RowPlan, RowProblem

from dataset_conversion.file_signatures import UTF8_MARK, find_mismatch_with_jsonl
from dataset_conversion.json_text import read_float
from dataset_conversion.likely_cause import JSON_ARRAY, PRETTY_PRINTED, is_array_start
from dataset_conversion.line_blocks import LineBlock, read_line_blocks
from dataset_conversion.nesting import is_deeper, is_record_deeper
from dataset_conversion.strict_json import is_guilty, read_strictly
from dataset_conversion.typed_rows import TypedRows, make_typed_rows

_SPACE = b" \t\r"
_count = bytes.count
_TYPED_ROWS_MAX = 16


_READ_ROW = msgspec.json.Decoder(dict[str, Any], float_hook=read_float).decode
# What the fast readers and writers raise; the exact reader then says what it is.
_UNSURE = (msgspec.MsgspecError, orjson.JSONEncodeError, NotCanonicalError, RowRefusedError, RecursionError)


def _count_colons(text: bytes) -> int:
    return len(text) - len(text.replace(b":", b""))


def _count_rare(lines: list[bytes], byte: bytes) -> Iterable[int]:
    # bytes.count looks at each byte, replace leaps from one occurrence to the next.
    return map(sub, map(len, lines), map(len, map(bytes.replace, lines, repeat(byte), repeat(b""))))


def convert_jsonl(
    read: Callable[[int], bytes],
    write: Callable[[bytes], object],
    *,
    mapping: Mapping[str, str] | None,
    nul: Literal["refuse", "replace"],
    limits: Limits,
) -> tuple[CanonicalRows, Notes]:
    """Check a JSONL file and write its canonical rows.

    Parameters
    ----------
    read
        Returns up to so many bytes of the file, nothing at its end.
    write, mapping, nul, limits
        See `dataset_conversion.conversion.convert`.

    Returns
    -------
    tuple of CanonicalRows and Notes
        What was written, and what was accepted and changed.

    Raises
    ------
    DatasetInvalidError
        The file is refused.
    records.row_fields.MappingInvalidError
        `mapping` makes no sense.
    """
    return _JsonlConversion(write, mapping, nul, limits).run(read)


class _JsonlConversion:
    def __init__(
        self,
        write: Callable[[bytes], object],
        mapping: Mapping[str, str] | None,
        nul: Literal["refuse", "replace"],
        limits: Limits,
    ) -> None:
        self._nul: Literal["refuse", "replace"] = nul
        self._limits = limits
        self._errors = ErrorCollector(limits.errors)
        self._rows = CanonicalRows(write, self._errors, limits)
        self._assembly = RowAssembly(mapping)
        self._has_mapping = bool(mapping)
        self._typed_rows: TypedRows | None = None
        self._last_names: tuple[str, ...] = ()
        self._typed_rows_of: dict[tuple[str, ...], TypedRows | None] = {}
        self._byte_order_mark = self._final_newline_missing = False
        self._crlf_lines = self._blank_lines = self._replaced_nuls = 0

    def run(self, read: Callable[[int], bytes]) -> tuple[CanonicalRows, Notes]:
        for block in read_line_blocks(read, self._limits.row_bytes):
            self._convert_block(self._without_mark(block) if block.first == 1 else block)
        self._errors.raise_if_any()
        if not self._rows.records:
            self._errors.refuse(RowError(None, None, "empty", "the file has no rows"))
        notes = msgspec.structs.replace(
            self._rows.make_notes(self._assembly.unmatched_mapping),
            byte_order_mark=self._byte_order_mark,
            crlf_lines=self._crlf_lines,
            blank_lines=self._blank_lines,
            final_newline_missing=self._final_newline_missing,
            replaced_nuls=self._replaced_nuls,
        )
        return self._rows, notes

    def _without_mark(self, block: LineBlock) -> LineBlock:
        mismatch = find_mismatch_with_jsonl(block.text)
        if mismatch:
            self._errors.refuse(RowError(1, None, mismatch.reason, mismatch.message))
        if not block.text.startswith(UTF8_MARK):
            return block
        self._byte_order_mark = True
        text = block.text.removeprefix(UTF8_MARK)
        return LineBlock(1, text, block.is_unterminated, block.overlong_bytes)

    def _convert_block(self, block: LineBlock) -> None:
        if block.overlong_bytes:
            self._refuse_row_size(block.first, block.overlong_bytes)
            return
        if block.is_unterminated and block.text:
            self._final_newline_missing = True
        if b"\r" in block.text:
            self._crlf_lines += block.text.count(b"\r\n")
            if block.text.endswith(b"\r") and not block.is_unterminated:
                self._crlf_lines += 1
        if not self._add_alike(block):
            self._rows.add(self._read_lines(block))

    def _add_alike(self, block: LineBlock) -> bool:
        """Add the rows of a block if nothing about any of them needs a closer look."""
        typed_rows, text = self._typed_rows, block.text
        if typed_rows is None or len(text) > self._limits.row_bytes or block.is_last_blank:
            return False
        if b"\\" in text and b"\\u00" in text:
            return False
        try:
            alike = self._read_alike(typed_rows, block.ended_lines)
        except _UNSURE:
            return False
        if alike is None:
            return False
        record_ids, piece = alike
        names_added = len(record_ids) * (typed_rows.origin.names_added or 0)
        if _count_colons(text) + names_added != _count_colons(piece):
            return False
        self._rows.add_alike(block.first, record_ids, piece, typed_rows.origin)
        return True

    def _read_alike(self, typed_rows: TypedRows, lines: list[bytes]) -> tuple[list[str], bytes] | None:
        """Return ids and canonical text of lines, ``None`` when they have to be read one by one."""
        if typed_rows.shaped_rows is not None:
            # Of one shape, they are no deeper than those that it was learned from.
            with suppress(msgspec.MsgspecError, NotCanonicalError):
                return typed_rows.shaped_rows.convert(lines)
        colons = map(_count, lines, repeat(b":"))
        if max(map(add, colons, _count_rare(lines, b"["))) >= self._limits.depth:
            return None
        alike = typed_rows.read_all(lines)
        if alike is None:
            return None
        record_ids, texts = alike
        piece = b"\n".join([*texts, b""])
        return None if is_order_unsure(piece) and any(map(is_order_unsure, texts)) else (record_ids, piece)

    def _read_lines(self, block: LineBlock) -> list[ReadyRow]:
        ready_rows: list[ReadyRow] = []
        row_bytes_max, depth_max = self._limits.row_bytes, self._limits.depth
        has_escapes = b"\\" in block.text and b"\\u00" in block.text
        for number, line in enumerate(block.lines, block.first):
            if len(line) > row_bytes_max and len(line.removesuffix(b"\r")) > row_bytes_max:
                self._refuse_row_size(number, len(line.removesuffix(b"\r")))
                continue
            colons = line.count(b":")
            if colons + line.count(b"[") >= depth_max and is_deeper(line, depth_max):
                ready = self._read_deep(number, line)
                if ready is not None:
                    ready_rows.append(ready)
                continue
            ready = self._read_quickly(number, line)
            if ready is not None:
                names_added = ready.origin.names_added
                is_suspicious = (
                    names_added is None
                    or colons + names_added != ready.text.count(b":")
                    or (has_escapes and b"\\u00" in line)
                )
                if not is_suspicious or not is_guilty(line):
                    ready_rows.append(ready)
                    continue
            ready = self._read_exactly(number, line)
            if ready is not None:
                ready_rows.append(ready)
        return ready_rows

    def _read_quickly(self, number: int, line: bytes) -> ReadyRow | None:
        """Return a row in canonical text; ``None`` when only the exact reader can tell what it is."""
        try:
            ready = self._typed_rows.read(number, line) if self._typed_rows else None
        except _UNSURE:
            ready = None
        if ready is not None:
            return ready
        try:
            row = _READ_ROW(line)
            names = tuple(row)
            plan = self._assembly.plan_without_nulls(names)
            # What a mapping matches is found out row by row: with one, a row without nulls has to come first.
            is_typical = not self._has_mapping or self._assembly.plan(row) is plan
            ready = self._assembly.assemble(number, row)
        except _UNSURE:
            return None
        if is_typical:
            self._choose_typed_rows(names, plan)
        return ready

    def _choose_typed_rows(self, names: tuple[str, ...], plan: RowPlan) -> None:
        """Choose the reader for rows with these names; its plan is the one of rows in which none is null."""
        if names not in self._typed_rows_of:
            # Making a reader pays for names that come again; a file without pattern gets none.
            is_worthwhile = names == self._last_names and len(self._typed_rows_of) < _TYPED_ROWS_MAX
            self._last_names = names
            if not is_worthwhile:
                return
            self._typed_rows_of[names] = make_typed_rows(names, plan, read_float)
        self._typed_rows = self._typed_rows_of[names]

    def _read_deep(self, number: int, line: bytes) -> ReadyRow | None:
        """Read a row beyond the limit on depth, which our own output is when a row of that depth got its metadata."""
        depth_max = self._limits.depth
        if not is_deeper(line, depth_max + 1):
            ready = self._read_exactly(number, line)
            if ready is None or not is_record_deeper(ready.text, depth_max):
                return ready
        message = f"objects and lists are nested more than {depth_max} deep: flatten the row"
        self._refuse(number, "depth", message)
        return None

    def _read_exactly(self, number: int, line: bytes) -> ReadyRow | None:
        if not line.strip(_SPACE):
            self._blank_lines += 1
            return None
        reading = read_strictly(line, self._nul)
        if not reading.is_json:
            self._refuse_syntax(number, line, reading.problems)
            return None
        if type(reading.value) is not dict:
            kind = JSON_ARRAY if is_array_start(line) else f"{name_kind(reading.value)} instead of an object"
            self._refuse(number, "not_object", f"the row is {kind}")
            return None
        problems = reading.problems
        try:
            ready = self._assembly.assemble(number, reading.value)
        except RowRefusedError as error:
            ready = None
            if error.record_id is not None:
                self._rows.reserve_id(number, error.record_id, error.id_pointer)
            at_fault = {problem.field for problem in problems}
            problems = [*problems, *(problem for problem in error.problems if problem.field not in at_fault)]
        if not problems:
            self._replaced_nuls += reading.replaced_nuls
            return ready
        if ready is not None and ready.record_id is not None:
            self._rows.reserve_id(number, ready.record_id, ready.origin.id_pointer)
        self._rows.note(number, problems)
        return None

    def _refuse_syntax(self, number: int, line: bytes, problems: list[RowProblem]) -> None:
        *_, last = problems
        is_first_row = self._rows.records == 0 and not self._errors
        if last.reason == "not_json" and is_array_start(line):
            self._refuse_file_if(is_first_row, RowError(number, None, "not_object", f"the row is {JSON_ARRAY}"))
            return
        self._rows.note(number, problems[:-1])
        error = RowError(number, last.field, last.reason, last.message)
        self._refuse_file_if(is_first_row and last.message.endswith(PRETTY_PRINTED), error)

    def _refuse_file_if(self, is_whole_file_wrong: bool, error: RowError) -> None:
        # The rest of such a file has the same fault in every line: one error says it all.
        if is_whole_file_wrong:
            self._errors.refuse(error)
        self._errors.add(error)

    def _refuse(self, number: int, reason: Reason, message: str) -> None:
        self._errors.add(RowError(number, None, reason, message))

    def _refuse_row_size(self, number: int, size: int) -> None:
        limit = self._limits.row_bytes
        self._refuse(number, "row_too_large", f"the row has {size} bytes; the limit is {limit} bytes")
