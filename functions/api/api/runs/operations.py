"""The declarations of the run operations."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page
from coordination.runs import Run

from api.runs.create_run import create_run
from api.runs.models import CreateRun, Report, Result, ResultQuery, RunQuery, WaitQuery
from api.runs.read_runs import get_run, list_results, list_runs, parse_run_id, read_report, wait_for_run


def _create(call: Call, transaction: Transaction) -> Answer:
    run = create_run(transaction, call.body_as(CreateRun), call.principal)
    return Answer(202, run, {"location": f"/v1/projects/{call.project}/runs/{run.id}"})


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_runs(transaction, call.query_as(RunQuery)))


def _wait(call: Call) -> None:
    run_id, wait_seconds = parse_run_id(call.path["run"]), call.query_as(WaitQuery).wait_seconds
    wait_for_run(call.environment.database, call.project, run_id, wait_seconds, call.deadline)


def _get(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, get_run(transaction, parse_run_id(call.path["run"])))


def _results(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_results(transaction, parse_run_id(call.path["run"]), call.query_as(ResultQuery)))


def _report(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, read_report(transaction, parse_run_id(call.path["run"])))


_RUN = "/v1/projects/{project}/runs/{run}"

OPERATIONS = (
    Operation(
        id="runs.create",
        method="POST",
        path="/v1/projects/{project}/runs",
        summary="Create a run; it is evaluated in the background.",
        permission="runs.create",
        body=CreateRun,
        responses={202: Run},
        idempotency=LocalWrite(),
        handle=_create,
    ),
    Operation(
        id="runs.list",
        method="GET",
        path="/v1/projects/{project}/runs",
        summary="List runs, newest first.",
        permission="runs.read",
        query=RunQuery,
        responses={200: Page[Run]},
        handle=_list,
    ),
    Operation(
        id="runs.get",
        method="GET",
        path=_RUN,
        summary="Read a run, waiting for its end if asked to.",
        permission="runs.read",
        query=WaitQuery,
        responses={200: Run},
        prepare=_wait,
        handle=_get,
    ),
    Operation(
        id="runs.results",
        method="GET",
        path=f"{_RUN}/results",
        summary="List results in the order of the records.",
        permission="runs.read",
        query=ResultQuery,
        responses={200: Page[Result]},
        handle=_results,
    ),
    Operation(
        id="runs.report",
        method="GET",
        path=f"{_RUN}/report",
        summary="Read the report of a finished run.",
        permission="runs.read",
        responses={200: Report},
        error_statuses=frozenset({409}),
        handle=_report,
    ),
)
