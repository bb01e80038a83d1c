"""Log the outcome of a run as a run in MLflow, over its REST API.

The run in MLflow carries the sink's id as a tag and is looked for by it before one is made: an attempt that died after
it made one finds it, and its id is kept in the sink's row. Everything else is set again to what it was: parameters and
tags by name, metrics at the time the run finished, the artifact under its name.

Source: "REST API" in MLflow's documentation; artifacts go through the tracking server's own proxy
(`mlflow server --serve-artifacts`, its default).
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast
from urllib.parse import quote, urlencode

import orjson
from coordination.clock import Deadline
from coordination.exported_results import encode_report
from coordination.ports.http_calls import HttpAnswer, OutgoingFailedError, OutgoingRefusedError
from coordination.ports.secrets import SecretUnavailableError
from coordination.secret_headers import SecretUnusableError, read_secret_headers
from coordination.sink_attempts import SinkFailedError, SinkOrder, SinkRefusedError

_API = "/api/2.0/mlflow"
_SINK_TAG = "evalward.sink"
_MAX_ANSWER_BYTES = 1024 * 1024
_CALL_SECONDS = 10.0
# What the writing of the row may take.
_SPARE_SECONDS = 5.0
# MLflow takes as many in one call.
_MAX_METRICS = 1000
_MAX_PARAMS = 100
_MAX_PARAM_CHARACTERS = 500
_STATISTICS = ("mean", "std", "ci_low", "ci_high", "n", "skipped", "errors", "coverage")


def log_to_mlflow(order: SinkOrder, deadline: Deadline) -> None:
    """Make the run in MLflow, or complete the one that an attempt before has made.

    Raises
    ------
    SinkRefusedError, SinkFailedError
        As `coordination.sink_attempts` has them.
    """
    server = _Server(order, deadline)
    run = _find_run(server, order) or _make_run(server, order)
    run_id: str = run["info"]["run_id"]
    if order.external_id != run_id:
        order.note_external_id(run_id)
    metrics = list_metrics(order.report, _milliseconds(order.finished_at))
    for start in range(0, len(metrics), _MAX_METRICS):
        server.call("POST", "/runs/log-batch", {"run_id": run_id, "metrics": metrics[start : start + _MAX_METRICS]})
    server.call(
        "POST", "/runs/log-batch", {"run_id": run_id, "params": list_params(order.report), "tags": _tags(order)}
    )
    server.put(f"{_artifact_path(run['info']['artifact_uri'])}/report.json", encode_report(order))
    end = {"run_id": run_id, "status": "FINISHED", "end_time": _milliseconds(order.finished_at)}
    server.call("POST", "/runs/update", end)


def list_metrics(report: Mapping[str, Any], at: int) -> list[dict[str, Any]]:
    """Return the statistics of a report as metrics of MLflow, `<metric>.<statistic>`; what is not known is left out.

    Parameters
    ----------
    report
        The report.
    at
        Milliseconds since 1970: the same for every attempt, so that a metric logged twice is one.
    """
    found: dict[str, float | None] = {}
    for metric in report["metrics"]:
        found |= {f"{metric['id']}.{statistic}": metric[statistic] for statistic in _STATISTICS}
    found |= {f"usage.{name}": amount for name, amount in report["usage"].items()}
    found["records"] = report["records"]
    found["passed"] = report["passed"]
    return [
        {"key": key, "value": float(value), "timestamp": at, "step": 0}
        for key, value in found.items()
        if value is not None
    ]


def list_params(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what a run was made of as parameters of MLflow."""
    params = {"dataset": report["dataset"]}
    params |= {name: report[name] for name in ("dataset_sha256", "config_sha256")}
    params |= {f"evaluator.{name}": str(version) for name, version in report["evaluator_versions"].items()}
    kept = [(name, value) for name, value in params.items() if value is not None][:_MAX_PARAMS]
    return [{"key": name, "value": str(value)[:_MAX_PARAM_CHARACTERS]} for name, value in kept]


class _Server:
    """A tracking server, called with what the sink's secret holds.

    Parameters
    ----------
    order
        The sink at work.
    deadline
        When the invocation ends: a call that might outlast it is not begun.
    """

    def __init__(self, order: SinkOrder, deadline: Deadline) -> None:
        self._order = order
        self._deadline = deadline
        self._endpoint: str = order.config["endpoint"].removesuffix("/")
        self._headers = _read_headers(order)

    def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Call the API and return the JSON object it answers.

        Raises
        ------
        SinkRefusedError
            The server refuses, or the address may not be called.
        SinkFailedError
            It did not answer, or may answer differently another time.
        """
        return self._read(self._send(method, f"{_API}{path}", None if body is None else orjson.dumps(body), path), path)

    def find(self, path: str, missing_code: str) -> dict[str, Any] | None:
        """Call GET and return the JSON object; None when the server says `missing_code`."""
        answer = self._send("GET", f"{_API}{path}", None, path)
        return None if _error_code(answer) == missing_code else self._read(answer, path)

    def make(self, path: str, body: Any, taken_code: str) -> dict[str, Any] | None:
        """Call POST and return the JSON object; None when the server says `taken_code`."""
        answer = self._send("POST", f"{_API}{path}", orjson.dumps(body), path)
        return None if _error_code(answer) == taken_code else self._read(answer, path)

    def put(self, path: str, content: bytes) -> None:
        """Put an artifact."""
        answer = self._send("PUT", path, content, "the artifact")
        self._require_success(answer, "the artifact")

    def _send(self, method: str, path: str, body: bytes | None, what: str) -> HttpAnswer:
        seconds = min(_CALL_SECONDS, self._deadline.remaining_seconds() - _SPARE_SECONDS)
        if seconds <= 0:
            raise SinkFailedError("the invocation ended before MLflow had everything")
        calls = self._order.environment.http_calls
        try:
            destination = calls.resolve(self._order.project, f"{self._endpoint}{path}")
            return calls.send(
                method, destination, body, self._headers, timeout_seconds=seconds, max_bytes=_MAX_ANSWER_BYTES
            )
        except OutgoingRefusedError as error:
            raise SinkRefusedError(f"MLflow may not be called: {error}") from error
        except OutgoingFailedError as error:
            raise SinkFailedError(f"MLflow, {_name(what)}: {error}") from error

    def _read(self, answer: HttpAnswer, path: str) -> dict[str, Any]:
        self._require_success(answer, path)
        try:
            document: Any = orjson.loads(answer.body)
        except orjson.JSONDecodeError as error:
            raise SinkFailedError(f"MLflow answered {_name(path)} with no JSON") from error
        if not isinstance(document, dict):
            raise SinkFailedError(f"MLflow answered {_name(path)} with no JSON object")
        return cast("dict[str, Any]", document)

    def _require_success(self, answer: HttpAnswer, what: str) -> None:
        if answer.status == 200:
            return
        # The server's own sentence may quote anything.
        said = f"MLflow answered {_name(what)} with {answer.status} {_error_code(answer)}".rstrip()
        if answer.status == 429 or answer.status >= 500:
            raise SinkFailedError(said)
        raise SinkRefusedError(said)


def _read_headers(order: SinkOrder) -> dict[str, str]:
    try:
        own = read_secret_headers(order.environment.secrets, order.project, order.config.get("secret"))
    except SecretUnusableError as error:
        raise SinkRefusedError(str(error)) from error
    except SecretUnavailableError as error:
        raise SinkFailedError("Secrets Manager did not answer") from error
    return own | {"content-type": "application/json", "accept": "application/json"}


def _find_run(server: _Server, order: SinkOrder) -> dict[str, Any] | None:
    """Return the run that an attempt before has made, by the id that was kept or by its tag."""
    if order.external_id is not None:
        found = server.find(f"/runs/get?{urlencode({'run_id': order.external_id})}", "RESOURCE_DOES_NOT_EXIST")
        if found is not None:
            return found["run"]
    if order.attempts == 1:
        return None
    experiment_id = _find_experiment(server, order)
    if experiment_id is None:
        return None
    search = {
        "experiment_ids": [experiment_id],
        "filter": f"tags.\"{_SINK_TAG}\" = '{order.wake_up.ref_id}'",
        "max_results": 1,
    }
    return next(iter(server.call("POST", "/runs/search", search).get("runs", [])), None)


def _make_run(server: _Server, order: SinkOrder) -> dict[str, Any]:
    new = {
        "experiment_id": _find_experiment(server, order) or _make_experiment(server, order),
        "run_name": order.report["name"] or str(order.run_id),
        "start_time": _milliseconds(datetime.fromisoformat(order.report["started_at"])),
        "tags": [{"key": _SINK_TAG, "value": order.wake_up.ref_id}],
    }
    return server.call("POST", "/runs/create", new)["run"]


def _find_experiment(server: _Server, order: SinkOrder) -> str | None:
    query = urlencode({"experiment_name": order.config["experiment"]})
    found = server.find(f"/experiments/get-by-name?{query}", "RESOURCE_DOES_NOT_EXIST")
    return None if found is None else str(found["experiment"]["experiment_id"])


def _make_experiment(server: _Server, order: SinkOrder) -> str:
    made = server.make("/experiments/create", {"name": order.config["experiment"]}, "RESOURCE_ALREADY_EXISTS")
    if made is not None:
        return str(made["experiment_id"])
    # Another run's sink was quicker.
    found = _find_experiment(server, order)
    if found is None:
        raise SinkFailedError("MLflow has the experiment and has it not")
    return found


def _tags(order: SinkOrder) -> list[dict[str, str]]:
    tags = {
        "evalward.project": order.project,
        "evalward.run": str(order.run_id),
        "evalward.state": order.state,
        "mlflow.source.name": "evalward",
    }
    return [{"key": name, "value": value} for name, value in tags.items()]


def _artifact_path(uri: str) -> str:
    """Return the path under which the tracking server takes artifacts of a run.

    Raises
    ------
    SinkRefusedError
        The server leaves artifacts to its clients, who would need to reach their store.
    """
    scheme, _, rest = uri.partition(":")
    if scheme != "mlflow-artifacts":
        raise SinkRefusedError(
            f"the MLflow server keeps artifacts of this experiment at {scheme}: and takes none itself; the experiment "
            "needs an artifact location of mlflow-artifacts:/ (mlflow server --serve-artifacts)"
        )
    path = rest.removeprefix("//").partition("/")[2] if rest.startswith("//") else rest.removeprefix("/")
    return f"/api/2.0/mlflow-artifacts/artifacts/{quote(path)}"


def _error_code(answer: HttpAnswer) -> str:
    """Return the code in an error's body; empty when there is none."""
    if answer.status == 200:
        return ""
    try:
        document: Any = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return ""
    code: Any = cast("dict[str, Any]", document).get("error_code") if isinstance(document, dict) else None
    return code if isinstance(code, str) and code.isascii() and code.replace("_", "").isalnum() else ""


def _name(path: str) -> str:
    return path.partition("?")[0].removeprefix("/")


def _milliseconds(instant: datetime) -> int:
    return int(instant.timestamp() * 1000)
