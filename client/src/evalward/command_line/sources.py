"""`evalward sources`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from evalward.command_line.documents import read_document
from evalward.command_line.options import AsJson, IdempotencyKey, Limit, Project, Yes
from evalward.command_line.output import print_table, say, show, show_done, show_fields, show_list
from evalward.command_line.session import confirm, open_session, take
from evalward.errors import ConfigurationError

app = typer.Typer(no_args_is_help=True)

_Source = Annotated[str, typer.Argument(metavar="SOURCE", help="Its id.")]
_Start = Annotated[str, typer.Argument(metavar="START", help="When the window starts, as the ledger shows it.")]
_File = Annotated[Path, typer.Option("--file", "-f", help="source.yaml or JSON; - is the standard input.")]


@app.command("apply")
def apply_source(
    file: _File, project: Project = None, idempotency_key: IdempotencyKey = None, as_json: AsJson = False
) -> None:
    """Make a source what a file says: create it, or change what differs. What the file leaves out stays.

    Null removes an endpoint or credentials.
    """
    del as_json
    body = read_document(file)
    with open_session() as session:
        applied, source = session.client.sources.apply(session.project(project), body, idempotency_key=idempotency_key)
    say(f"{source['id']}: {applied}.")
    show_fields(source, _SUMMARY)


@app.command("preview")
def preview_source(
    source: Annotated[str | None, typer.Argument(help="Its id.")] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="A source that does not exist yet.")] = None,
    after: Annotated[str | None, typer.Option(help="From this instant on; by default from now.")] = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Tell when a source ticks next and what the first tick reads; nothing is stored."""
    del as_json
    if (source is None) == (file is None):
        raise ConfigurationError("Give the id of a source, or --file.")
    body = read_document(file) if file else {}
    with open_session() as session:
        where, sources = session.project(project), session.client.sources
        if source is not None:
            preview = sources.preview(where, source, after=after)
        else:
            preview = sources.preview_new(where, body, after=after)

    def summary() -> None:
        print_table(["next ticks"], [[tick] for tick in preview["next_ticks"]])
        if window := preview["next_window"]:
            say(f"The first reads what started from {window['start']} on and before {window['end']}.")

    show(preview, summary)


@app.command("list")
def list_sources(project: Project = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List sources by id."""
    del as_json
    with open_session() as session:
        items, is_cut = take(session.client.sources.each(session.project(project)), limit)
    columns = {"id": "id", "connector": "connector", "cron": _read_cron, "paused": "paused", "next_tick": "next_tick"}
    show_list(items, {**columns, "cursor": "cursor", "last_run": "last_run"}, is_cut=is_cut)


@app.command("show")
def show_source(source: _Source, project: Project = None, as_json: AsJson = False) -> None:
    """Read a source with its cursor and its counters."""
    del as_json
    with open_session() as session:
        show_fields(session.client.sources.get(session.project(project), source))


@app.command("summary")
def show_summary(source: _Source, project: Project = None, as_json: AsJson = False) -> None:
    """Tell what a source did last."""
    del as_json
    with open_session() as session:
        show_fields(session.client.sources.summary(session.project(project), source))


@app.command("windows")
def list_windows(
    source: _Source,
    state: Annotated[str | None, typer.Option(help="Only windows in this state.")] = None,
    project: Project = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what became of each tick, newest first."""
    del as_json
    with open_session() as session:
        windows = session.client.sources.each_window(session.project(project), source, state=state)
        items, is_cut = take(windows, limit)
    columns = {"start": _read_start, "end": _read_end, "state": "state", "ticks": "ticks", "attempts": "attempts"}
    show_list(items, {**columns, "traces": "traces", "run": "run", "why": _describe_error}, is_cut=is_cut)


@app.command("run")
def run_window(
    source: _Source,
    start: _Start,
    exclude_trace: Annotated[
        list[str] | None, typer.Option("--exclude-trace", help="A trace to pass over; the report names it. Repeatable.")
    ] = None,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Run one window by hand: a missed one, or a decided one again as a new run."""
    del as_json
    with open_session() as session:
        entry = session.client.sources.run_window(
            session.project(project),
            source,
            start,
            exclude_trace_ids=exclude_trace,
            idempotency_key=idempotency_key,
        )
    show_fields(entry)


@app.command("skip")
def skip_window(
    source: _Source,
    start: _Start,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Give up a window that is being tried."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.sources.skip_window(where, source, start, idempotency_key=idempotency_key))


@app.command("pause")
def pause_source(
    source: _Source, project: Project = None, idempotency_key: IdempotencyKey = None, as_json: AsJson = False
) -> None:
    """Pause a source; what was being tried is skipped."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.sources.pause(where, source, idempotency_key=idempotency_key), _SUMMARY)


@app.command("resume")
def resume_source(
    source: _Source, project: Project = None, idempotency_key: IdempotencyKey = None, as_json: AsJson = False
) -> None:
    """Resume a source; ticks count from now on."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.sources.resume(where, source, idempotency_key=idempotency_key), _SUMMARY)


@app.command("retire")
def retire_source(
    source: _Source,
    yes: Yes = False,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Retire a source for good; its runs and windows stay."""
    del as_json
    confirm(f"Retire {source}? Its id is not free again.", is_agreed=yes)
    with open_session() as session:
        session.client.sources.retire(session.project(project), source, idempotency_key=idempotency_key)
    show_done("retired", source)


_SUMMARY = ("id", "connector", "location", "schedule", "window", "paused", "cursor", "next_tick", "updated_at")


def _read_cron(source: Any) -> str:
    return source["schedule"]["cron"]


def _read_start(entry: Any) -> str:
    return entry["window"]["start"]


def _read_end(entry: Any) -> str:
    return entry["window"]["end"]


def _describe_error(entry: Any) -> str:
    return f"{entry['error_code']}: {entry['error']}" if entry["error_code"] else ""
