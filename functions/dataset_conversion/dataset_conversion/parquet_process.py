"""Runs the process that decodes a Parquet file, and holds it to its time."""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import BinaryIO, Literal, NoReturn, cast

import msgspec
from records.limits import Limits
from records.row_errors import DatasetInvalidError, RowError
from records.row_fields import MappingInvalidError

from dataset_conversion.decoder_messages import ACCEPTED, BAD_MAPPING, FRAME, REFUSED, ROWS, Accepted, Refused, Request

_MODULE = "dataset_conversion.parquet_decoder"
_COPY_BYTES = 1024 * 1024
_PIPE_BYTES = 1024 * 1024


class _DecoderEndedError(Exception):
    """The decoder ended, or was ended, without a verdict; the message says how."""


def convert_parquet(
    read: Callable[[int], bytes],
    write: Callable[[bytes], object],
    *,
    mapping: Mapping[str, str] | None,
    nul: Literal["refuse", "replace"],
    limits: Limits,
) -> Accepted:
    """Check a Parquet file and write its canonical rows.

    Parameters
    ----------
    read
        Returns up to so many bytes of the file, nothing at its end. Parquet is read from its end, so the file is copied
        to an unnamed temporary file first.
    write, mapping, nul, limits
        See `dataset_conversion.conversion.convert`.

    Returns
    -------
    Accepted
        Counts, shard index and notes.

    Raises
    ------
    DatasetInvalidError
        The file is refused; ``decoded_too_large`` when its decoder crashed or went beyond its memory or time.
    records.row_fields.MappingInvalidError
        `mapping` makes no sense.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        size = 0
        while piece := read(_COPY_BYTES):
            size += len(piece)
            file.write(piece)
        file.flush()
        own_mapping = dict(mapping) if mapping is not None else None
        request = Request(os.getpid(), file.fileno(), size, own_mapping, nul, limits)
        try:
            return _run_decoder(request, write)
        except _DecoderEndedError as error:
            message = f"the file cannot be decoded within the limits: the decoder {error}; write smaller row groups"
            raise DatasetInvalidError([RowError(None, None, "decoded_too_large", message)]) from None


def _run_decoder(request: Request, write: Callable[[bytes], object]) -> Accepted:
    with ExitStack() as stack:
        process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-S", "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(request.file_descriptor,),
            env=_make_environment(),
        )
        stack.enter_context(process)
        # Before the wait of the process's own exit: nothing that it could do then is of interest.
        stack.callback(process.kill)
        # A decoder that is gone already is found out when it does not answer.
        with suppress(BrokenPipeError), cast("BinaryIO", process.stdin) as standard_input:
            standard_input.write(msgspec.json.encode(request))
        answers = _Answers(cast("BinaryIO", process.stdout), request.seconds)
        while True:
            kind, payload = answers.read()
            if kind == ROWS:
                write(payload)
            elif kind == ACCEPTED:
                return msgspec.json.decode(payload, type=Accepted)
            elif kind == REFUSED:
                raise DatasetInvalidError(msgspec.json.decode(payload, type=Refused).to_errors())
            elif kind == BAD_MAPPING:
                raise MappingInvalidError(payload.decode())
            else:
                raise _DecoderEndedError("answered nonsense")


def _make_environment() -> dict[str, str]:
    return {
        # The child starts without site-packages of its own and finds modules where this process finds them.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
        "PATH": os.environ.get("PATH", ""),
        "LC_ALL": "C.UTF-8",
        # Address space is bounded: no arenas in advance, no pool that keeps what it was given, no threads.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


class _Answers:
    """Reads messages, and counts only the time that is spent waiting for them."""

    def __init__(self, stream: BinaryIO, seconds: float) -> None:
        self._descriptor = stream.fileno()
        self._seconds_left = self._seconds = seconds

    def read(self) -> tuple[bytes, bytes]:
        kind, size = FRAME.unpack(self._read_exactly(FRAME.size))
        return kind, self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytes:
        pieces: list[bytes] = []
        while size:
            piece = self._read_some(size)
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def _read_some(self, size: int) -> bytes:
        started = time.monotonic()
        readable, _, _ = select.select([self._descriptor], [], [], max(0.0, self._seconds_left))
        self._seconds_left -= time.monotonic() - started
        if not readable:
            self._fail(f"took more than {self._seconds:.3g} seconds, the limit")
        piece = os.read(self._descriptor, min(size, _PIPE_BYTES))
        if not piece:
            self._fail("crashed or needed more memory than its limit")
        return piece

    @staticmethod
    def _fail(how: str) -> NoReturn:
        raise _DecoderEndedError(how)
