"""Thrift's compact protocol, read strictly: the encoding of Parquet's footer and page headers.

Readers in use are lenient: they skip what they do not know, take overlong numbers, and let the last of two equal fields
win, so that two readers can see two different files. This one refuses whatever a writer would not write, and never
takes more memory or stack than the input justifies.

Source of the rules: "Thrift Compact protocol encoding" in the Apache Thrift specification.
"""

import struct
from typing import Any, Final

_BOOLEAN_TRUE: Final = 1
_BOOLEAN_FALSE: Final = 2
_BYTE: Final = 3
_I16: Final = 4
_I32: Final = 5
_I64: Final = 6
_DOUBLE: Final = 7
_BINARY: Final = 8
_LIST: Final = 9
_SET: Final = 10
_STRUCT: Final = 12
_UUID: Final = 13

_BITS = {_I16: 16, _I32: 32, _I64: 64}
_DEPTH_MAX = 16
_LONG_LIST: Final = 15
_FIELD_ID_MAX = 2**15 - 1

type Fields = dict[int, Any]
"""A struct: field ids to values. Structs in it are `Fields`, lists and sets lists, texts and binaries bytes."""


class MalformedError(Exception):
    """The bytes are no structure of the compact protocol; the message says what is wrong with them."""


class CompactReader:
    """Reads structs from a buffer.

    Parameters
    ----------
    buffer
        The bytes.
    start, end
        Reading begins and ends here.
    elements_max
        Fields and list items that may be read.
    """

    __slots__ = ("_buffer", "_elements_left", "_end", "position")

    def __init__(self, buffer: bytes | memoryview, start: int, end: int, elements_max: int) -> None:
        self._buffer = buffer
        self._end = end
        self._elements_left = elements_max
        self.position = start

    def read_struct(self, depth: int = 0) -> Fields:
        """Return the next struct.

        Raises
        ------
        MalformedError
            It is cut off, nested too deep, has more elements than allowed, or breaks the encoding.
        """
        if depth > _DEPTH_MAX:
            raise MalformedError("structures are nested too deep")
        fields: Fields = {}
        field_id = 0
        while header := self._read_byte():
            kind, step = header & 0x0F, header >> 4
            field_id = field_id + step if step else self._read_integer(_I16)
            if not 0 < field_id <= _FIELD_ID_MAX:
                raise MalformedError("a field has an impossible number")
            if field_id in fields:
                raise MalformedError("a field occurs twice")
            self._take_elements(1)
            if kind == _BOOLEAN_TRUE:
                fields[field_id] = True
            elif kind == _BOOLEAN_FALSE:
                fields[field_id] = False
            else:
                fields[field_id] = self._read_value(kind, depth + 1)
        return fields

    def _read_value(self, kind: int, depth: int) -> Any:
        if kind in _BITS:
            return self._read_integer(kind)
        if kind == _BINARY:
            return bytes(self._read_bytes(self._read_varint()))
        if kind == _STRUCT:
            return self.read_struct(depth)
        if kind in {_LIST, _SET}:
            return self._read_list(depth)
        if kind == _BYTE:
            byte = self._read_byte()
            return byte - 256 if byte > 127 else byte
        if kind == _DOUBLE:
            return struct.unpack("<d", self._read_bytes(8))[0]
        if kind == _UUID:
            return bytes(self._read_bytes(16))
        # No structure of Parquet has a map.
        raise MalformedError("a field has an impossible type")

    def _read_list(self, depth: int) -> list[Any]:
        if depth > _DEPTH_MAX:
            raise MalformedError("structures are nested too deep")
        header = self._read_byte()
        size, kind = header >> 4, header & 0x0F
        if size == _LONG_LIST:
            size = self._read_varint()
        if size > self._end - self.position:
            raise MalformedError("a list is longer than the input")
        self._take_elements(size)
        if kind in {_BOOLEAN_TRUE, _BOOLEAN_FALSE}:
            return [self._read_byte() == _BOOLEAN_TRUE for _ in range(size)]
        return [self._read_value(kind, depth + 1) for _ in range(size)]

    def _read_byte(self) -> int:
        position = self.position
        if position >= self._end:
            raise MalformedError("it is cut off")
        self.position = position + 1
        return self._buffer[position]

    def _read_bytes(self, size: int) -> bytes | memoryview:
        start = self.position
        if size > self._end - start:
            raise MalformedError("it is cut off")
        self.position = start + size
        return self._buffer[start : start + size]

    def _read_varint(self) -> int:
        byte = self._read_byte()
        if byte < 0x80:
            return byte
        value, shift = byte & 0x7F, 7
        while True:
            byte = self._read_byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise MalformedError("a number is too long")
        if not byte or value >> 64:
            raise MalformedError("a number is too long")
        return value

    def _read_integer(self, kind: int) -> int:
        zigzag = self._read_varint()
        value = (zigzag >> 1) ^ -(zigzag & 1)
        bound = 1 << (_BITS[kind] - 1)
        if not -bound <= value < bound:
            raise MalformedError("a number is out of its range")
        return value

    def _take_elements(self, count: int) -> None:
        self._elements_left -= count
        if self._elements_left < 0:
            raise MalformedError("it has more elements than any honest file")
