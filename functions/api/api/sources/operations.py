"""The declarations of the source operations."""

from coordination.cron import Ticks, parse_cron
from coordination.database import Transaction
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page, PageQuery
from coordination.remote_places import check_hosts, check_sink_hosts
from coordination.sources import LedgerEntry, SourceConfig, read_ticks
from coordination.targets import RecordedTarget

from api.runs.check_places import check_places
from api.sources.manage_sources import (
    create_source,
    find_source_row,
    get_source,
    list_sources,
    pause_source,
    read_summary,
    read_time,
    retire_source,
    update_source,
)
from api.sources.models import (
    AfterQuery,
    CreateSource,
    Preview,
    RunWindow,
    Source,
    SourceSummary,
    UpdateSource,
    WindowQuery,
)
from api.sources.preview_ticks import preview_ticks
from api.sources.source_rows import make_config
from api.sources.windows import list_windows, run_window, skip_window


def _check_new(call: Call) -> None:
    new, calls = call.body_as(CreateSource), call.environment.http_calls
    check_hosts(calls, call.project, {"/endpoint": new.endpoint})
    check_places(call.environment, call.project, RecordedTarget(), new.evaluators)
    check_sink_hosts(calls, call.project, new.sinks, "/sinks")


def _check_changes(call: Call) -> None:
    changes, calls = call.body_as(UpdateSource), call.environment.http_calls
    check_hosts(calls, call.project, {"/endpoint": changes.endpoint})
    check_places(call.environment, call.project, RecordedTarget(), changes.evaluators or [])
    check_sink_hosts(calls, call.project, changes.sinks or [], "/sinks")


def _create(call: Call, transaction: Transaction) -> Answer:
    source = create_source(transaction, call.body_as(CreateSource), call.environment.settings, call.principal)
    return Answer(201, source, {"location": f"/v1/projects/{call.project}/sources/{source.id}"})


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_sources(transaction, call.query_as(PageQuery)))


def _get(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, get_source(transaction, call.path["source"]))


def _update(call: Call, transaction: Transaction) -> Answer:
    update, settings = call.body_as(UpdateSource), call.environment.settings
    return Answer(200, update_source(transaction, call.path["source"], update, settings))


def _retire(call: Call, transaction: Transaction) -> Answer:
    retire_source(transaction, call.path["source"])
    return Answer(204)


def _pause(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, pause_source(transaction, call.path["source"], is_paused=True))


def _resume(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, pause_source(transaction, call.path["source"], is_paused=False))


def _preview(call: Call, transaction: Transaction) -> Answer:
    row = find_source_row(transaction, call.path["source"])
    window = SourceConfig.model_validate(row["config"]).window
    return Answer(200, preview_ticks(read_ticks(row), window, call.query_as(AfterQuery).after or row["now"]))


def _preview_new(call: Call, transaction: Transaction) -> Answer:
    new = call.body_as(CreateSource)
    config = make_config(new, call.environment.settings, call.project)
    after = call.query_as(AfterQuery).after or read_time(transaction)
    return Answer(200, preview_ticks(Ticks(parse_cron(new.schedule.cron)), config.window, after))


def _windows(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_windows(transaction, call.path["source"], call.query_as(WindowQuery)))


def _run_window(call: Call, transaction: Transaction) -> Answer:
    source, start = call.path["source"], call.path["start"]
    return Answer(202, run_window(transaction, source, start, call.body_as(RunWindow), call.principal))


def _skip_window(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, skip_window(transaction, call.path["source"], call.path["start"]))


def _summary(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, read_summary(transaction, call.path["source"]))


_SOURCES = "/v1/projects/{project}/sources"
_SOURCE = f"{_SOURCES}/{{source}}"

OPERATIONS = (
    Operation(
        id="sources.create",
        method="POST",
        path=_SOURCES,
        summary="Create a source: on each tick of its cron the window before it is pulled, redacted and evaluated.",
        permission="sources.write",
        body=CreateSource,
        responses={201: Source},
        error_statuses=frozenset({409}),
        idempotency=LocalWrite(),
        prepare=_check_new,
        handle=_create,
    ),
    Operation(
        id="sources.list",
        method="GET",
        path=_SOURCES,
        summary="List sources by id; retired ones are left out.",
        permission="sources.read",
        query=PageQuery,
        responses={200: Page[Source]},
        handle=_list,
    ),
    Operation(
        id="sources.preview_new",
        method="POST",
        path="/v1/projects/{project}/sources:preview",
        summary="Check a source and tell when it would tick; nothing is stored.",
        permission="sources.read",
        query=AfterQuery,
        body=CreateSource,
        responses={200: Preview},
        idempotency=LocalWrite(),
        prepare=_check_new,
        handle=_preview_new,
    ),
    Operation(
        id="sources.get",
        method="GET",
        path=_SOURCE,
        summary="Read a source with its cursor and its counters.",
        permission="sources.read",
        responses={200: Source},
        handle=_get,
    ),
    Operation(
        id="sources.update",
        method="PATCH",
        path=_SOURCE,
        summary="Change fields of a source; another cron lets ticks count from now on.",
        permission="sources.write",
        body=UpdateSource,
        responses={200: Source},
        idempotency=LocalWrite(),
        prepare=_check_changes,
        handle=_update,
    ),
    Operation(
        id="sources.retire",
        method="DELETE",
        path=_SOURCE,
        summary="Retire a source; its runs and windows stay.",
        permission="sources.write",
        responses={204: None},
        idempotency=LocalWrite(),
        handle=_retire,
    ),
    Operation(
        id="sources.pause",
        method="POST",
        path=f"{_SOURCE}/pause",
        summary="Pause a source; what was being tried is skipped.",
        permission="sources.write",
        responses={200: Source},
        idempotency=LocalWrite(),
        handle=_pause,
    ),
    Operation(
        id="sources.resume",
        method="POST",
        path=f"{_SOURCE}/resume",
        summary="Resume a source; ticks count from now on.",
        permission="sources.write",
        responses={200: Source},
        idempotency=LocalWrite(),
        handle=_resume,
    ),
    Operation(
        id="sources.preview",
        method="POST",
        path=f"{_SOURCE}/preview",
        summary="Tell when a source ticks next; nothing is stored.",
        permission="sources.read",
        query=AfterQuery,
        responses={200: Preview},
        idempotency=LocalWrite(),
        handle=_preview,
    ),
    Operation(
        id="sources.windows",
        method="GET",
        path=f"{_SOURCE}/windows",
        summary="List what became of each tick, newest first: done, empty, working, missed and why.",
        permission="sources.read",
        query=WindowQuery,
        responses={200: Page[LedgerEntry]},
        handle=_windows,
    ),
    Operation(
        id="sources.run_window",
        method="POST",
        path=f"{_SOURCE}/windows/{{start}}/run",
        summary="Run one window by hand: a missed one, or a decided one again as a new run.",
        permission="sources.write",
        body=RunWindow,
        responses={202: LedgerEntry},
        idempotency=LocalWrite(),
        handle=_run_window,
    ),
    Operation(
        id="sources.skip_window",
        method="POST",
        path=f"{_SOURCE}/windows/{{start}}/skip",
        summary="Give up a window that is being tried.",
        permission="sources.write",
        responses={200: LedgerEntry},
        error_statuses=frozenset({409}),
        idempotency=LocalWrite(),
        handle=_skip_window,
    ),
    Operation(
        id="sources.summary",
        method="GET",
        path=f"{_SOURCE}/summary",
        summary="Tell what a source did last, as far as it is still kept.",
        permission="sources.read",
        responses={200: SourceSummary},
        handle=_summary,
    ),
)
