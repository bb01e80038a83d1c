"""Bring the outcome of a run to one of its sinks."""

from functools import partial
from typing import IO

import orjson
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.exported_results import put_export, read_results
from coordination.ports.event_bus import EventNotTakenError
from coordination.sink_attempts import SinkFailedError, SinkOrder, attempt_sink
from coordination.wake_ups import WakeUp

from delivery.log_to_mlflow import log_to_mlflow

_LEASE_SECONDS = 60
# What the writing of the objects and of the row may take.
_SPARE_SECONDS = 15.0


def export_run(environment: Environment, project: str, sink_id: str, deadline: Deadline) -> None:
    """Make an attempt at a queued sink, under a lease; the sink's own row says whether it is done.

    Objects (`results.jsonl`, a result a line in the order of the records, then `report.json`) are written only where
    none are, so an attempt that died is repeated without harm; an event that was put before its sender died is put
    again with the same `id`, and a run in MLflow is found by the sink's id.

    Raises
    ------
    coordination.leases.LeaseLostError
        Somebody took over.
    """

    def act(order: SinkOrder) -> None:
        match order.config["kind"]:
            case "s3":
                write = partial(_write_results, order, deadline)
                put_export(order, "results.jsonl", "application/x-ndjson", write)
            case "mlflow":
                log_to_mlflow(order, deadline)
            case _:
                _put_event(order)

    attempt_sink(environment, WakeUp("delivery", "sink", project, sink_id), _LEASE_SECONDS, act)


def _write_results(order: SinkOrder, deadline: Deadline, results: IO[bytes]) -> None:
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
