"""Write the results and the report of a run as objects, never over others."""

import hashlib
import tempfile
from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any, BinaryIO, cast
from uuid import UUID

import orjson
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.ports.objects import ObjectNotFoundError, Objects
from coordination.queries import load_queries
from coordination.sinks import find_prefix_fault
from coordination.wake_ups import WakeUp

_SINKS = load_queries("sinks")
_RUNS = load_queries("runs")
_PAGE_ROWS = 5_000
# What the writing of the objects and of the row may take.
_SPARE_SECONDS = 15.0
_CHUNK_BYTES = 1024 * 1024


class ExportConflictError(Exception):
    """There is another object where one was to be written; the message names its key."""


class ExportRefusedError(Exception):
    """The project may not write there; the message says why."""


class ExportTooLongError(Exception):
    """The invocation ends before the results are read."""


class RunGoneError(Exception):
    """The run was deleted while it was read: what was read is not whole."""


def put_run(environment: Environment, wake_up: WakeUp, sink: Mapping[str, Any], deadline: Deadline) -> None:
    """Write `<prefix>/<run>/results.jsonl`, a result a line in the order of the records, and `report.json`.

    The results pass through a temporary file, in pages of a transaction each: they do not change once a run has its
    report, and that they are still all there is looked at before the first byte is written.

    Raises
    ------
    ExportConflictError, ExportRefusedError
        Trying again does not help.
    ExportTooLongError, StorageUnavailableError
        It may.
    RunGoneError
        There is nothing to export any more.
    """
    prefix: str = sink["config"]["prefix"]
    fault = find_prefix_fault(prefix, wake_up.project)
    if fault is not None:
        raise ExportRefusedError(f"the prefix {fault}")
    folder = f"{prefix.removesuffix('/')}/{sink['run_id']}"
    with tempfile.TemporaryFile() as results:
        _write_results(environment, wake_up.project, sink["run_id"], results, deadline)
        with environment.database.transaction(wake_up.project) as transaction:
            params = {"tenant": wake_up.project, "id": UUID(wake_up.ref_id)}
            row = transaction.fetch_one(_SINKS["is_sink_queued"], params)
        if row is None or not row["is_queued"]:
            raise RunGoneError
        _put_once(environment.objects, f"{folder}/results.jsonl", cast("BinaryIO", results), "application/x-ndjson")
    report = BytesIO(orjson.dumps(sink["report"]))
    _put_once(environment.objects, f"{folder}/report.json", report, "application/json")


def _write_results(
    environment: Environment, project: str, run_id: UUID, results: IO[bytes], deadline: Deadline
) -> None:
    last: dict[str, Any] = {"record_no": None, "trial": None, "evaluator": None}
    while True:
        if deadline.remaining_seconds() < _SPARE_SECONDS:
            raise ExportTooLongError("the run has more results than one invocation can export")
        with environment.database.transaction(project) as transaction:
            rows = transaction.fetch_all(
                _RUNS["list_results"],
                {
                    "tenant": project,
                    "run_id": run_id,
                    "evaluator": None,
                    "status": None,
                    "after_record_no": last["record_no"],
                    "after_trial": last["trial"],
                    "after_evaluator": last["evaluator"],
                    "limit": _PAGE_ROWS,
                },
            )
        for row in rows:
            result = {name: value for name, value in row.items() if name != "record_no"}
            results.write(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE))
        if len(rows) < _PAGE_ROWS:
            return
        last = rows[-1]


def _put_once(objects: Objects, key: str, body: BinaryIO, content_type: str) -> None:
    """Write an object unless these very bytes are there already.

    Raises
    ------
    ExportConflictError
        Other bytes are.
    """
    body.seek(0)
    if objects.put(key, body, content_type):
        return
    try:
        there = _digest(objects.open(key).body)
    except ObjectNotFoundError:
        there = None
    body.seek(0)
    if there != _digest(body):
        raise ExportConflictError(f"there is another object at {key}; it was left as it is")


def _digest(body: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while chunk := body.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.digest()
