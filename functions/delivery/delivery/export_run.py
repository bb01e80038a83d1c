"""Bring the outcome of a run to one of its sinks."""

import tempfile
from typing import IO, BinaryIO, cast

import orjson
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.exported_results import export_folder, put_once, put_report, read_results
from coordination.ports.event_bus import EventNotTakenError
from coordination.sink_attempts import SinkFailedError, SinkOrder, attempt_sink
from coordination.wake_ups import WakeUp

from delivery.log_to_mlflow import log_to_mlflow

_LEASE_SECONDS = 60
# What the writing of the objects and of the row may take.
_SPARE_SECONDS = 15.0


def export_run(environment: Environment, project: str, sink_id: str, deadline: Deadline) -> None:
    """Make an attempt at a queued sink, under a lease; the sink's own row says whether it is done.

    Objects are written only where none are, so an attempt that died is repeated without harm; an event that was put
    before its sender died is put again with the same `id`, and a run in MLflow is found by the sink's id.

    Raises
    ------
    coordination.leases.LeaseLostError
        Somebody took over.
    """

    def act(order: SinkOrder) -> None:
        match order.config["kind"]:
            case "s3":
                put_run(order, deadline)
            case "mlflow":
                log_to_mlflow(order, deadline)
            case _:
                _put_event(order)

    attempt_sink(environment, WakeUp("delivery", "sink", project, sink_id), _LEASE_SECONDS, act)


def put_run(order: SinkOrder, deadline: Deadline) -> None:
    """Write `<prefix>/<run>/results.jsonl`, a result a line in the order of the records, and `report.json`.

    The results pass through a temporary file: that they are all still there is looked at before the first byte is
    written.

    Raises
    ------
    SinkRefusedError, SinkFailedError, StorageUnavailableError, RunGoneError
        As `coordination.sink_attempts` has them.
    """
    folder = export_folder(order)
    with tempfile.TemporaryFile() as results:
        _write_results(order, results, deadline)
        order.require_run()
        objects = order.environment.objects
        put_once(objects, f"{folder}/results.jsonl", cast("BinaryIO", results), "application/x-ndjson")
    put_report(order, folder)


def _write_results(order: SinkOrder, results: IO[bytes], deadline: Deadline) -> None:
    for page in read_results(order, deadline, _SPARE_SECONDS):
        results.writelines(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE) for result in page)


def _put_event(order: SinkOrder) -> None:
    path = f"/v1/projects/{order.project}/runs/{order.run_id}"
    detail = {
        "id": order.wake_up.ref_id,
        "project": order.project,
        "run": str(order.run_id),
        "state": order.state,
        "gates": order.report["gates"],
        "links": {"run": path, "report": f"{path}/report"},
    }
    try:
        order.environment.event_bus.put("run.finished", detail, order.finished_at)
    except EventNotTakenError as error:
        raise SinkFailedError(f"EventBridge did not take the event ({error})") from error
