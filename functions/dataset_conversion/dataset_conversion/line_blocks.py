r"""A file as lines, some hundreds at a time, in memory that does not depend on the file's size.

Lines end at the byte ``\n`` and nowhere else: U+0085 and U+2028 are characters of the data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO

BLOCK_BYTES = 128 * 1024


@dataclass(frozen=True)
class LineBlock:
    r"""Consecutive lines.

    Parameters
    ----------
    first
        1-based number of the first of them.
    text
        The lines, without the ``\n`` of the last one.
    is_unterminated
        The last line has no ``\n``: the file ends with it.
    overlong_bytes
        When not 0, the block stands for one line that is longer than lines may be: its size, without ``\r``.
    """

    first: int
    text: bytes
    is_unterminated: bool = False
    overlong_bytes: int = 0

    @property
    def lines(self) -> list[bytes]:
        r"""The lines without their ``\n``; a ``\r`` before it is still there."""
        return self.text.split(b"\n")

    @cached_property
    def ended_lines(self) -> list[bytes]:
        r"""The lines with their ``\n``, the last one without, and without it when it is blank; found much faster."""
        return BytesIO(self.text).readlines()

    @property
    def is_last_blank(self) -> bool:
        """Whether the last line has no character at all."""
        return not self.text or self.text.endswith(b"\n")

    @property
    def count(self) -> int:
        """Number of lines, of a block that stands for no overlong one."""
        return len(self.ended_lines) + self.is_last_blank


def read_line_blocks(
    read: Callable[[int], bytes], line_bytes_max: int, block_bytes: int = BLOCK_BYTES
) -> Iterator[LineBlock]:
    r"""Yield the lines of a file.

    Parameters
    ----------
    read
        Returns up to so many bytes, nothing at the end of the file.
    line_bytes_max
        The longest line to hold, without its end (``\n`` or ``\r\n``); longer ones are measured only.
    block_bytes
        How much to read at a time.
    """
    first = 1
    held: list[bytes] = []
    held_bytes = 0
    while chunk := read(block_bytes):
        cut = chunk.rfind(b"\n")
        if cut < 0:
            held.append(chunk)
            held_bytes += len(chunk)
            # One byte more than a line may have: it may turn out to be the \r of its end.
            if held_bytes <= line_bytes_max + 1:
                continue
            size, chunk, found_end = _measure_overlong(read, block_bytes, held)
            yield LineBlock(first, b"", is_unterminated=not found_end, overlong_bytes=size)
            first += 1
            held, held_bytes = ([chunk], len(chunk)) if chunk else ([], 0)
            cut = chunk.rfind(b"\n")
            if cut < 0:
                continue
            held.clear()
        text = b"".join([*held, memoryview(chunk)[:cut]])
        held, held_bytes = ([chunk[cut + 1 :]], len(chunk) - cut - 1) if cut + 1 < len(chunk) else ([], 0)
        block = LineBlock(first, text)
        yield block
        first += block.count
    if held_bytes:
        text = b"".join(held)
        yield LineBlock(first, text, is_unterminated=True)


def _measure_overlong(read: Callable[[int], bytes], block_bytes: int, held: list[bytes]) -> tuple[int, bytes, bool]:
    """Read to the end of an overlong line; return its size, what was read beyond it, and whether it has an end."""
    size = sum(map(len, held))
    last = held[-1][-1:]
    while chunk := read(block_bytes):
        cut = chunk.find(b"\n")
        if cut < 0:
            size += len(chunk)
            last = chunk[-1:]
            continue
        size += cut
        last = chunk[cut - 1 : cut] if cut else last
        return size - (last == b"\r"), chunk[cut + 1 :], True
    return size - (last == b"\r"), b"", False
