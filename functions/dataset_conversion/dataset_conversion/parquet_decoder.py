"""The process that decodes one Parquet file: started by `dataset_conversion.parquet_process`, never imported by it.

A decoder can be made to allocate until the machine is full, to crash, or to run for ever, by files that hold together
in everything that can be checked beforehand. So it runs here, with its memory and time bounded by the kernel, and
whatever happens to this process is a refusal of the file.
"""

import ctypes
import math
import mmap
import os
import resource
import signal
import sys
from types import ModuleType
from typing import BinaryIO, cast

import msgspec
from records.row_errors import DatasetInvalidError, RowError
from records.row_fields import MappingInvalidError

from dataset_conversion.decoder_messages import ACCEPTED, BAD_MAPPING, REFUSED, ROWS, Accepted, Refused, Request, send
from dataset_conversion.file_signatures import find_mismatch_with_parquet
from dataset_conversion.parquet_pages import inspect_parquet
from dataset_conversion.parquet_refusal import ParquetRefusedError

_PR_SET_PDEATHSIG = 1
_BYTES_BETWEEN_SENDS = 256 * 1024


def main() -> None:
    """Read the request from standard input and answer on standard output."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    _die_with_parent(request.parent_process_id)
    _bound_resources(request)
    _answer(request, sys.stdout.buffer)
    # There is nothing to tidy up that the kernel does not.
    os._exit(0)


def _die_with_parent(parent_process_id: int) -> None:
    """Ask the kernel to kill this process when the one that waits for its answer dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have died before it could be asked for.
    if os.getppid() != parent_process_id:
        os._exit(1)


def _do_without(*modules: str) -> None:
    # pyarrow loads them where they happen to be installed, which takes longer than decoding, and needs neither here.
    for module in modules:
        sys.modules[module] = cast("ModuleType", None)


def _bound_resources(request: Request) -> None:
    space = request.limits.decoder_address_space_bytes
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    seconds = max(1, math.ceil(request.seconds))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(request: Request, output: BinaryIO) -> None:
    try:
        accepted = _convert(request, output)
    except MappingInvalidError as error:
        send(output.write, BAD_MAPPING, str(error).encode())
    except DatasetInvalidError as refusal:
        _refuse(output, refusal.errors)
    except ParquetRefusedError as refusal:
        _refuse(output, (RowError(None, refusal.field, refusal.reason, refusal.message),))
    except MemoryError:
        message = "the file is small, but not what it decodes to: it needs more memory than a decoder may have"
        _refuse(output, (RowError(None, None, "decoded_too_large", message),))
    except Exception as error:  # noqa: BLE001 - a decoder fed with garbage raises anything
        message = f"the file is damaged or no valid Parquet: the decoder stopped with {type(error).__name__}"
        _refuse(output, (RowError(None, None, "parquet_corrupt", message),))
    else:
        send(output.write, ACCEPTED, msgspec.json.encode(accepted))
    output.flush()


def _refuse(output: BinaryIO, errors: tuple[RowError, ...]) -> None:
    send(output.write, REFUSED, msgspec.json.encode(Refused.of(errors)))


def _convert(request: Request, output: BinaryIO) -> Accepted:
    if not request.file_bytes:
        raise ParquetRefusedError("empty", "the file is empty")
    # Never closed: the decoder keeps views of it, and the process ends with its answer.
    file = mmap.mmap(request.file_descriptor, request.file_bytes, prot=mmap.PROT_READ)
    mismatch = find_mismatch_with_parquet(file[:32])
    if mismatch:
        raise ParquetRefusedError(mismatch.reason, mismatch.message)
    inspection = inspect_parquet(memoryview(file), request.limits)
    _do_without("numpy", "pandas")
    # Loading the decoder takes longer than all that was checked so far.
    from dataset_conversion.parquet_rows import convert_parquet_rows

    held = bytearray()

    def write(rows: bytes) -> None:
        held.extend(rows)
        if len(held) >= _BYTES_BETWEEN_SENDS:
            send(output.write, ROWS, bytes(held))
            held.clear()

    rows, notes = convert_parquet_rows(
        file, inspection, write, mapping=request.mapping, nul=request.nul, limits=request.limits
    )
    if held:
        send(output.write, ROWS, bytes(held))
    return Accepted(rows.records, rows.bytes, rows.shards, notes)


if __name__ == "__main__":
    main()
