"""What the sinks that write objects do alike: read a run's results in pages, and write an object never over another."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import IO, Any, BinaryIO, cast

import orjson

from coordination.clock import Deadline
from coordination.ports.objects import ObjectNotFoundError, Objects
from coordination.queries import load_queries
from coordination.sink_attempts import SinkFailedError, SinkOrder, SinkRefusedError
from coordination.sinks import find_prefix_fault

_RUNS = load_queries("runs")
_PAGE_ROWS = 5_000
_CHUNK_BYTES = 1024 * 1024


def put_export(order: SinkOrder, name: str, content_type: str, write: Callable[[IO[bytes]], None]) -> None:
    """Write `<prefix>/<run>/<name>` and, after it, `report.json`: who sees the report finds the results.

    Parameters
    ----------
    order
        The sink at work.
    name, content_type
        Of the object with the results.
    write
        Writes its bytes into a temporary file, the same bytes for the same results: that the results are all still
        there is looked at before the object is begun.

    Raises
    ------
    SinkRefusedError, SinkFailedError, StorageUnavailableError, RunGoneError
        As `coordination.sink_attempts` has them.
    """
    prefix: str = order.config["prefix"]
    fault = find_prefix_fault(prefix, order.project)
    if fault is not None:
        raise SinkRefusedError(f"the prefix {fault}")
    folder = f"{prefix.removesuffix('/')}/{order.run_id}"
    objects = order.environment.objects
    with tempfile.TemporaryFile() as results:
        write(results)
        order.require_run()
        put_once(objects, f"{folder}/{name}", cast("BinaryIO", results), content_type)
    put_once(objects, f"{folder}/report.json", BytesIO(encode_report(order)), "application/json")


def read_results(order: SinkOrder, deadline: Deadline, spare_seconds: float) -> Iterator[list[dict[str, Any]]]:
    """Yield the results of a run in the order of its records, in pages of a transaction each.

    They do not change once a run has its report; that they are all still there `put_export` looks at afterwards.

    Parameters
    ----------
    order
        The sink at work.
    deadline, spare_seconds
        When the invocation ends, and what is needed after the last page.

    Raises
    ------
    SinkFailedError
        The invocation ends before the results are read.
    """
    last: dict[str, Any] = {"record_no": None, "trial": None, "evaluator": None}
    while True:
        if deadline.remaining_seconds() < spare_seconds:
            raise SinkFailedError("the run has more results than one invocation can export")
        with order.environment.database.transaction(order.project) as transaction:
            rows = transaction.fetch_all(
                _RUNS["list_results"],
                {
                    "tenant": order.project,
                    "run_id": order.run_id,
                    "evaluator": None,
                    "status": None,
                    "after_record_no": last["record_no"],
                    "after_trial": last["trial"],
                    "after_evaluator": last["evaluator"],
                    "limit": _PAGE_ROWS,
                },
            )
        if rows:
            yield [{name: value for name, value in row.items() if name != "record_no"} for row in rows]
        if len(rows) < _PAGE_ROWS:
            return
        last = rows[-1]


def encode_report(order: SinkOrder) -> bytes:
    """Return the report as it is exported: the same bytes every time."""
    return orjson.dumps(order.report)


def put_once(objects: Objects, key: str, body: BinaryIO, content_type: str) -> None:
    """Write an object unless these very bytes are there already.

    Raises
    ------
    SinkRefusedError
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
        raise SinkRefusedError(f"there is another object at {key}; it was left as it is")


def _digest(body: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while chunk := body.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.digest()
