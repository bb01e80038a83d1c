"""The declarations of the run operations."""

from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page, PageQuery
from coordination.remote_places import check_sink_hosts
from coordination.runs import Run

from api.runs.change_run import cancel_run, label_run, resume_run
from api.runs.check_places import check_places
from api.runs.compare_runs import compare_runs, compare_with
from api.runs.create_run import create_run
from api.runs.delete_run import delete_run
from api.runs.models import (
    CompareQuery,
    Comparison,
    CreateRun,
    Output,
    Report,
    ReportQuery,
    Result,
    ResultQuery,
    RunQuery,
    UpdateRun,
    WaitQuery,
)
from api.runs.read_excerpts import FoundExcerpts, add_excerpts, read_excerpts
from api.runs.read_runs import get_run, list_outputs, list_results, list_runs, parse_run_id, read_report, wait_for_run
from api.runs.reports.media_types import MEDIA_TYPES, choose_format
from api.runs.reports.present_report import present_report


def _check(call: Call) -> None:
    new = call.body_as(CreateRun)
    check_places(call.environment, call.project, new.target, new.evaluators)
    check_sink_hosts(call.environment.http_calls, call.project, new.sinks, "/sinks")


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


def _outputs(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_outputs(transaction, parse_run_id(call.path["run"]), call.query_as(PageQuery)))


def _read_excerpts(call: Call) -> FoundExcerpts | None:
    # No transaction waits for the bucket, and nothing is read that is not shown.
    query = call.query_as(ReportQuery)
    if not query.excerpts or (query.format or choose_format(call.accept)) == "junit":
        return None
    return read_excerpts(call.environment, call.principal, call.project, parse_run_id(call.path["run"]))


def _report(call: Call, transaction: Transaction) -> Answer:
    run_id, query = parse_run_id(call.path["run"]), call.query_as(ReportQuery)
    report = add_excerpts(read_report(transaction, run_id), call.prepared)
    if query.baseline is not None:
        report = report.model_copy(update={"comparison": compare_with(transaction, query.baseline, run_id)})
    return present_report(report, query.format or choose_format(call.accept))


def _compare(call: Call, transaction: Transaction) -> Answer:
    query = call.query_as(CompareQuery)
    return Answer(200, compare_runs(transaction, query.baseline, query.candidate))


def _cancel(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, cancel_run(transaction, parse_run_id(call.path["run"])))


def _resume(call: Call, transaction: Transaction) -> Answer:
    return Answer(202, resume_run(transaction, parse_run_id(call.path["run"])))


def _label(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, label_run(transaction, parse_run_id(call.path["run"]), call.body_as(UpdateRun)))


def _delete(call: Call, transaction: Transaction) -> Answer:
    delete_run(transaction, parse_run_id(call.path["run"]), call.principal)
    return Answer(204)


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
        prepare=_check,
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
        id="runs.compare",
        method="GET",
        path="/v1/projects/{project}/runs:compare",
        summary="Compare two runs record by record: differences with intervals, regressions and fixes.",
        permission="runs.read",
        query=CompareQuery,
        responses={200: Comparison},
        error_statuses=frozenset({409}),
        handle=_compare,
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
        id="runs.outputs",
        method="GET",
        path=f"{_RUN}/outputs",
        summary="List what the target answered, in the order of the records.",
        permission="runs.read",
        query=PageQuery,
        responses={200: Page[Output]},
        handle=_outputs,
    ),
    Operation(
        id="runs.report",
        method="GET",
        path=f"{_RUN}/report",
        summary="Read the report of a finished run, and what moved: JSON, an HTML page, Markdown, or JUnit XML for CI.",
        permission="runs.read",
        query=ReportQuery,
        other_content_types=tuple(MEDIA_TYPES.values())[1:],
        responses={200: Report},
        error_statuses=frozenset({409}),
        prepare=_read_excerpts,
        handle=_report,
    ),
    Operation(
        id="runs.cancel",
        method="POST",
        path=f"{_RUN}/cancel",
        summary="Cancel a pending or running run; what it has evaluated stays.",
        permission="runs.cancel",
        responses={200: Run},
        idempotency=LocalWrite(),
        handle=_cancel,
    ),
    Operation(
        id="runs.resume",
        method="POST",
        path=f"{_RUN}/resume",
        summary="Resume a run that ended in error or was cancelled; only what has no result is evaluated.",
        permission="runs.create",
        responses={202: Run},
        idempotency=LocalWrite(),
        handle=_resume,
    ),
    Operation(
        id="runs.label",
        method="PATCH",
        path=_RUN,
        summary="Set labels of a run, or take them off with null. `evalsi.keep: true` exempts it from retention.",
        permission="runs.label",
        body=UpdateRun,
        responses={200: Run},
        idempotency=LocalWrite(),
        handle=_label,
    ),
    Operation(
        id="runs.delete",
        method="DELETE",
        path=_RUN,
        summary="Delete an ended run with its results and its report. For 24 hours a repeated deletion answers alike.",
        permission="runs.delete",
        responses={204: None},
        idempotency=LocalWrite(),
        handle=_delete,
    ),
)
