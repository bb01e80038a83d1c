"""OTLP files in S3, as the OpenTelemetry Collector's awss3 exporter writes them.

Keys lie under `year=2026/month=11/day=30/hour=20/minute=10/` of the time a file was written (UTC), so a trace's spans
are in files from its start on. A trace may be spread over several files, in no order; gzip is told by its first bytes.
Files directly under the location, without such a prefix, are read when they were written after the window began.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from coordination.clock import Deadline
from coordination.errors import StorageUnavailableError
from coordination.ports.objects import ObjectNotFoundError, Objects

from scheduled_pull.otlp_json import OtlpError, TraceParts, read_traces_data
from scheduled_pull.traces import PullFailedError, Trace, Window

LOOK_BACK = timedelta(hours=1)
"""How much earlier files are read: a trace that began before the window must be known to be none of it."""

LOOK_AHEAD = timedelta(hours=25)
"""How much later files are read: as long as a window may be tried on its own, whenever it is run by hand."""

_CLOCK_SKEW = timedelta(minutes=5)
_PAGE_SIZE = 1000
_MAX_FILES = 20_000
# Braces and brackets: an empty object takes two bytes of a file and seventy of memory.
_MAX_FILE_PARTS = 8_000_000
_MAX_MEMBERS, _PIECE_BYTES = 100_000, 16 * 1024
_MAX_FILE_BYTES = 64 * 1024 * 1024
# Read as objects it is several times as large in memory.
_MAX_READ_BYTES = 128 * 1024 * 1024
_PARTITION = re.compile(
    r"year=(\d{4})/month=(\d{1,2})/day=(\d{1,2})/hour=(\d{1,2})(?:/minute=(\d{1,2}))?/[^/]+", re.ASCII
)


class OtlpFiles:
    """Traces in the files under one prefix of the bundle's bucket.

    Parameters
    ----------
    objects
        The bucket.
    prefix
        Ends with a slash.
    deadline
        Of the pull.
    """

    def __init__(self, objects: Objects, prefix: str, deadline: Deadline) -> None:
        self._objects = objects
        self._prefix = prefix
        self._deadline = deadline
        self._parts = TraceParts()

    def list(self, window: Window) -> Sequence[str]:
        """Read the files of a window and return the traces that start in it.

        A trace that began in the hour before the window is known by its earlier spans and left out.
        """
        self._parts = TraceParts()
        read_bytes = 0
        try:
            for count, key in enumerate(self._list_keys(window)):
                if count == _MAX_FILES:
                    raise PullFailedError(
                        "too_many_files", f"The window has more than {_MAX_FILES} files; take a shorter window."
                    )
                content = self._read(key)
                read_bytes += len(content)
                if read_bytes > _MAX_READ_BYTES:
                    raise PullFailedError(
                        "files_too_large",
                        f"The files of the window hold more than {_MAX_READ_BYTES} bytes; take a shorter window.",
                    )
                self._add(key, content)
        except StorageUnavailableError as error:
            raise PullFailedError("store_unavailable", "The bucket did not answer, or refused.") from error
        return [trace_id for trace_id, trace in self._parts.traces.items() if window.has(trace.start)]

    def fetch(self, trace_ids: Sequence[str]) -> Sequence[Trace]:
        """Return traces that `list` has read."""
        traces = self._parts.traces
        return [traces[trace_id] for trace_id in trace_ids if trace_id in traces]

    def _list_keys(self, window: Window) -> Iterator[str]:
        first, last = window.start - LOOK_BACK - _CLOCK_SKEW, window.end + LOOK_AHEAD
        yield from (key for key, at in self._pages(self._prefix, "") if self._is_loose(key) and at >= first)
        after = f"{self._prefix}year={first:%Y}/month={first:%m}/day={first:%d}/hour={first:%H}/"
        for key, _ in self._pages(f"{self._prefix}year=", after):
            minute = self._read_partition(key)
            # Keys come in the order of their times.
            if minute is not None and minute > last:
                return
            if minute is not None and minute >= first:
                yield key

    def _pages(self, prefix: str, after: str) -> Iterator[tuple[str, datetime]]:
        while True:
            self._check_time()
            page = self._objects.list_page(prefix, after, _PAGE_SIZE)
            for key, written_at in page:
                if prefix == self._prefix and key.startswith(f"{self._prefix}year="):
                    # Partitions are listed apart, from the first one that matters.
                    return
                yield key, written_at
            if len(page) < _PAGE_SIZE:
                return
            after = page[-1][0]

    def _is_loose(self, key: str) -> bool:
        return "/" not in key.removeprefix(self._prefix) and not key.endswith("/")

    def _read_partition(self, key: str) -> datetime | None:
        """Return the end of the minute, or the hour, that a key's prefix names; None when it names none."""
        match = _PARTITION.fullmatch(key.removeprefix(self._prefix))
        if match is None:
            return None
        year, month, day, hour, minute = (int(part) if part else 59 for part in match.groups())
        try:
            return datetime(year, month, day, hour, minute, 59, 999_999, tzinfo=UTC)
        except ValueError:
            return None

    def _read(self, key: str) -> bytes:
        self._check_time()
        try:
            stored = self._objects.open(key)
            if stored.bytes > _MAX_FILE_BYTES:
                raise PullFailedError("file_too_large", f"The file {key} has more than {_MAX_FILE_BYTES} bytes.")
            content = stored.body.read()
        except ObjectNotFoundError as error:
            raise PullFailedError("file_missing", f"The file {key} was listed and is gone.") from error
        if content[:2] == b"\x1f\x8b":
            content = _unzip(key, content)
        if content.count(b"{") + content.count(b"[") > _MAX_FILE_PARTS:
            raise PullFailedError(
                "file_too_large", f"The file {key} has more than {_MAX_FILE_PARTS} JSON objects and lists."
            )
        return content

    def _add(self, key: str, content: bytes) -> None:
        try:
            for part in read_traces_data(content):
                self._parts.add(part)
        except OtlpError as error:
            raise PullFailedError("file_not_readable", f"The file {key} is no OTLP JSON: {error}.") from error

    def _check_time(self) -> None:
        if self._deadline.remaining_seconds() < 0:
            raise PullFailedError(
                "pull_timeout", "The files of the window were not read in time; take a shorter window."
            )


def _unzip(key: str, content: bytes) -> bytes:
    """Unzip a file, one member or several, as far as the limits go.

    Piece by piece: what follows a member is copied when it ends.
    """
    unzipped, place, members = bytearray(), 0, 0
    stream = None
    try:
        while place < len(content):
            if stream is None:
                stream = zlib.decompressobj(wbits=31)
                members += 1
            piece = content[place : place + _PIECE_BYTES]
            unzipped += stream.decompress(piece, _MAX_FILE_BYTES + 1 - len(unzipped))
            if len(unzipped) > _MAX_FILE_BYTES:
                raise PullFailedError(
                    "file_too_large", f"The file {key} has more than {_MAX_FILE_BYTES} bytes unzipped."
                )
            if members > _MAX_MEMBERS:
                raise PullFailedError("file_too_large", f"The file {key} has more than {_MAX_MEMBERS} gzip members.")
            place += len(piece) - len(stream.unconsumed_tail) - len(stream.unused_data)
            if stream.eof:
                stream = None
    except zlib.error as error:
        raise PullFailedError("file_not_readable", f"The file {key} begins like gzip and is not.") from error
    if stream is not None:
        raise PullFailedError("file_not_readable", f"The file {key} ends in the middle of its gzip data.")
    return bytes(unzipped)
