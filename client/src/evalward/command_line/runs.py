"""`evalward runs`."""

import contextlib
import sys
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from evalward.client import Client
from evalward.command_line.documents import read_document, read_pairs
from evalward.command_line.exit_codes import ExitCode, of_run
from evalward.command_line.options import (
    AsJson,
    AsLines,
    IdempotencyKey,
    Limit,
    LimitOfLines,
    OutputFile,
    Project,
    Quiet,
    Yes,
)
from evalward.command_line.output import (
    Column,
    as_cell,
    notes,
    print_table,
    say,
    show,
    show_done,
    show_fields,
    show_ids,
    show_lines,
    show_list,
    write_file,
)
from evalward.command_line.selection import find_run, finder, is_sha256, is_word
from evalward.command_line.session import Session, confirm, open_session, take
from evalward.command_line.worst_records import print_worst, with_unit
from evalward.errors import ConfigurationError
from evalward.resources.runs import END_STATES
from evalward.transport import JsonObject

app = typer.Typer(no_args_is_help=True)

_FORMS = {"html": "html", "md": "markdown", "junit": "junit", "json": "json"}
_POLL_SECONDS = 2
_USUAL_LIMIT = 50

_Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="Its id; `latest`, the run created last; or `previous`, the newest one before it of its name (and source) "
        "that has a report.",
    ),
]
_Wait = Annotated[bool, typer.Option("--wait", help="Wait for the end; exit with 3 when a gate failed.")]
_WaitSeconds = Annotated[float, typer.Option("--wait-seconds", min=0, help="How long to wait.")]


@app.command("create")
def create_run(
    file: Annotated[
        Path, typer.Option("--file", "-f", help="run.yaml or JSON, as docs/api.md says; - is standard input.")
    ],
    name: Annotated[str | None, typer.Option(help="Instead of the file's.")] = None,
    dataset: Annotated[str | None, typer.Option(help="NAME, NAME@VERSION or SHA-256, instead of the file's.")] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="key=value, beside the file's. Repeatable.")
    ] = None,
    wait: _Wait = False,
    wait_seconds: _WaitSeconds = 3600,
    quiet: Quiet = False,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Create a run. Interrupted, the same command finds the run it made and makes no other."""
    del as_json
    body = read_document(file)
    body |= {"name": name} if name else {}
    body |= {"dataset": _read_dataset(dataset)} if dataset else {}
    body |= {"labels": _read_labels(body) | read_pairs(label, "--label")} if label else {}
    with open_session() as session:
        where = session.project(project)
        run = session.client.runs.create(where, body, idempotency_key=idempotency_key)
        if quiet:
            show_ids([run])
        else:
            say(f"Run {run['id']}, {run['progress']['total']} records.")
            if not wait:
                show_fields(run, _SUMMARY)
        if wait:
            _wait(session, where, run["id"], wait_seconds, is_quiet=quiet)


@app.command("wait")
def wait_for_run(
    run: _Run, wait_seconds: _WaitSeconds = 3600, project: Project = None, as_json: AsJson = False
) -> None:
    """Wait for a run's end and show what came out; exit with 3 when a gate failed."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        _wait(session, where, find_run(session.client, where, run), wait_seconds)


@app.command("list")
def list_runs(
    state: Annotated[str | None, typer.Option(help="pending, running, succeeded, failed, error or cancelled.")] = None,
    label: Annotated[str | None, typer.Option(help="key=value.")] = None,
    source: Annotated[str | None, typer.Option(help="Only runs of this source.")] = None,
    created_after: Annotated[str | None, typer.Option(help="An instant, as 2027-01-31T00:00:00Z.")] = None,
    quiet: Quiet = False,
    project: Project = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first."""
    del as_json
    query = {"state": state, "label": label, "source": source, "created_after": created_after}
    with open_session() as session:
        items, is_cut = take(session.client.runs.each(session.project(project), **query), limit)
    if quiet:
        show_ids(items)
        return
    columns = {"id": "id", "name": "name", "state": "state", "of": _describe_data, "records": _describe_progress}
    show_list(items, {**columns, "created_at": "created_at"}, is_cut=is_cut)


@app.command("show")
def show_run(run: _Run, project: Project = None, as_json: AsJson = False) -> None:
    """Read a run."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.runs.get(where, find_run(session.client, where, run)))


@app.command("results")
def list_results(
    run: _Run,
    evaluator: Annotated[str | None, typer.Option(help="Only of this evaluator.")] = None,
    status: Annotated[str | None, typer.Option(help="scored, skipped or error.")] = None,
    project: Project = None,
    limit: LimitOfLines = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> None:
    """List results in the order of the records."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        run_id = find_run(session.client, where, run)
        results = session.client.runs.each_result(where, run_id, evaluator=evaluator, status=status)
        names = ("record", "trial", "evaluator", "status", "score", "passed", "error")
        _show_records(results, {name: name for name in names}, limit, as_lines=as_lines)


@app.command("outputs")
def list_outputs(
    run: _Run,
    project: Project = None,
    limit: LimitOfLines = None,
    as_json: AsJson = False,
    as_lines: AsLines = False,
) -> None:
    """List what the run's target answered, in the order of the records. Recorded outputs stand in the dataset."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        outputs = session.client.runs.each_output(where, find_run(session.client, where, run))
        columns: dict[str, Column] = {
            "record": "record",
            "trial": "trial",
            "output": lambda one: as_cell(one["output"]),
        }
        names = ("error", "latency_ms", "input_tokens", "output_tokens", "cost_usd", "attempts")
        _show_records(outputs, {**columns, **{name: name for name in names}}, limit, as_lines=as_lines)


@app.command("report")
def read_report(
    run: _Run,
    form: Annotated[
        Literal["html", "md", "junit", "json"] | None, typer.Option("--format", help="By default a table.")
    ] = None,
    output: OutputFile = None,
    baseline: Annotated[
        str,
        typer.Option(
            metavar="RUN|previous|none",
            help="What the report says the run moved from: as RUN; `previous` is the one before RUN.",
        ),
    ] = "previous",
    excerpts: Annotated[
        bool,
        typer.Option(
            "--excerpts/--no-excerpts",
            help="Quote the worst records, or not: where others read the report that may not read records.",
        ),
    ] = True,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Read the report of a finished run, with what its worst records say, and what moved since another one."""
    form = form or ("json" if as_json else None)
    with open_session() as session:
        where = session.project(project)
        run_id = find_run(session.client, where, run)
        since = None if baseline == "none" else baseline
        # The service knows which is the previous one.
        since = find_run(session.client, where, since) if since == "latest" else since
        if form is None and output is None:
            report = session.client.runs.report(where, run_id, since, excerpts=excerpts)
            _print_report(report)
            print_worst(report)
            return
        wanted = _FORMS[form or _form_of(output)]
        content = session.client.runs.render_report(where, run_id, wanted, since, excerpts=excerpts)
    if output is None:
        sys.stdout.buffer.write(content.rstrip(b"\n") + b"\n")
    else:
        write_file(output, content)
        say(f"Wrote {output}.")


@app.command("compare")
def compare_runs(
    baseline: Annotated[
        str,
        typer.Argument(
            metavar="BASELINE",
            help="The run to compare with: its id, `latest`, or `previous`, the newest one before CANDIDATE of its "
            "name (and source) that has a report.",
        ),
    ],
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATE", help="The run to judge: its id, `latest`, or the one `previous` to BASELINE."
        ),
    ],
    fail_on_regression: Annotated[
        bool,
        typer.Option("--fail-on-regression", help="Exit with 3 when a metric is worse and its interval excludes 0."),
    ] = False,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Compare two runs record by record."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        baseline, candidate = _find_both(session.client, where, baseline, candidate)
        comparison = session.client.runs.compare(where, baseline, candidate)
    show(comparison, lambda: _print_comparison(comparison))
    worse = [metric["id"] for metric in comparison["metrics"] if is_regression(metric)]
    if fail_on_regression and worse:
        say(f"Worse: {', '.join(worse)}. `evalward runs compare {baseline} {candidate} --json` has the records.")
        raise typer.Exit(ExitCode.GATE_FAILED)


@app.command("cancel")
def cancel_run(
    run: _Run, project: Project = None, idempotency_key: IdempotencyKey = None, as_json: AsJson = False
) -> None:
    """Cancel a run that has not ended; what it has evaluated stays."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        find = finder(session.client, where, run)
        answer = session.client.runs.cancel(where, run, find=find, idempotency_key=idempotency_key)
    show_fields(answer, _SUMMARY)


@app.command("resume")
def resume_run(
    run: _Run,
    wait: _Wait = False,
    wait_seconds: _WaitSeconds = 3600,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Resume a run that ended in error or was cancelled; only what has no result is evaluated."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        find = finder(session.client, where, run)
        answer = session.client.runs.resume(where, run, find=find, idempotency_key=idempotency_key)
        if wait:
            _wait(session, where, answer["id"], wait_seconds)
        else:
            show_fields(answer, _SUMMARY)


@app.command("label")
def label_run(
    run: _Run,
    labels: Annotated[list[str], typer.Argument(help="key=value sets a label, key- takes one off.")],
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Set labels or take them off. evalsi.keep=true exempts a run from retention."""
    del as_json
    changes: dict[str, str | None] = {}
    for text in labels:
        key, equals, value = text.partition("=")
        if not equals and not text.endswith("-"):
            raise ConfigurationError(f"{text!r} is neither key=value, such as team=search, nor key-, such as draft-.")
        changes[key if equals else text[:-1]] = value if equals else None
    with open_session() as session:
        where = session.project(project)
        find = finder(session.client, where, run)
        answer = session.client.runs.label(where, run, changes, find=find, idempotency_key=idempotency_key)
    show_fields(answer, ("id", "name", "labels"))


@app.command("delete")
def delete_run(
    run: _Run,
    yes: Yes = False,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Delete an ended run with its results and its report."""
    del as_json
    if not is_word(run):
        confirm(f"Delete the run {run} with its report?", is_agreed=yes)
    with open_session() as session:
        where = session.project(project)

        def find() -> str:
            found = find_run(session.client, where, run)
            confirm(f"Delete the run {found} with its report?", is_agreed=yes)
            return found

        deleted = session.client.runs.delete(
            where, run, find=find if is_word(run) else None, idempotency_key=idempotency_key
        )
    show_done("deleted", deleted)


def is_regression(metric: JsonObject) -> bool:
    """Tell whether a metric is worse beyond doubt: its interval lies on the wrong side of 0."""
    low, high = metric["ci_low"], metric["ci_high"]
    match metric["better"]:
        case "higher":
            return high is not None and high < 0
        case "lower":
            return low is not None and low > 0
        case _:
            return False


_SUMMARY = ("id", "name", "state", "dataset", "source", "progress", "labels", "created_at", "error")


_AFTER = {
    "failed": " `evalward runs report {run}` says which gate failed.",
    "error": " `evalward runs resume {run} --wait` goes on with what has no result, once the cause is mended.",
    "cancelled": " `evalward runs resume {run} --wait` goes on with what has no result.",
}


def _find_both(client: Client, project: str, baseline: str, candidate: str) -> tuple[str, str]:
    """Return the ids of two runs to compare; `previous` is the run before the other one."""
    if baseline == candidate == "previous":
        raise ConfigurationError("BASELINE and CANDIDATE cannot both be `previous`: that is the run before the other.")
    if baseline == "previous":
        candidate = find_run(client, project, candidate)
        return find_run(client, project, baseline, candidate), candidate
    baseline = find_run(client, project, baseline)
    return baseline, find_run(client, project, candidate, baseline)


def _wait(session: Session, project: str, run_id: str, wait_seconds: float, *, is_quiet: bool = False) -> None:
    """Wait for the end, show it unless quiet, and leave with the status that says it."""
    client = session.client
    session.on_interrupt = f"Interrupted. The run goes on: `evalward runs wait {run_id}` waits for its end."
    with _progress() as look:
        run = client.runs.wait(project, run_id, timeout_seconds=wait_seconds, look=look, poll_seconds=_POLL_SECONDS)

    def summary() -> None:
        if run["state"] in ("succeeded", "failed"):
            _print_report(client.runs.report(project, run_id))
        if run["error"]:
            say(f"{run['error']['code']}: {run['error']['detail']}")

    if not is_quiet:
        show(run, summary)
    say(f"Run {run_id}: {run['state']}.{_AFTER.get(run['state'], '').format(run=run_id)}")
    raise typer.Exit(of_run(run["state"]))


@contextlib.contextmanager
def _progress() -> Generator[Callable[[JsonObject], None]]:
    """Show how far a run is: a bar on a terminal, else a line a state."""
    console = notes()
    if not console.is_terminal:
        seen: set[str] = set()

        def tell(run: JsonObject) -> None:
            if run["state"] not in (*seen, *END_STATES):
                seen.add(run["state"])
                say(f"{run['state']} …")

        yield tell
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("pending", total=None)
        yield lambda run: bar.update(
            task, description=run["state"], completed=run["progress"]["done"], total=run["progress"]["total"] or None
        )


def _print_report(report: JsonObject) -> None:
    columns = ("n", "mean", "ci_low", "ci_high", "skipped", "errors", "coverage")
    print_table(
        ["metric", "n", "mean", "95 % from", "to", "skipped", "errors", "coverage"],
        [[_name(metric), *(metric[name] for name in columns)] for metric in report["metrics"]],
    )
    units = {metric["id"]: metric.get("unit") for metric in report["metrics"]}
    if report["gates"]:
        print_table(
            ["gate", "must be", "is", "passed", ""],
            [
                [
                    f"{gate['metric']} {gate['stat']}",
                    _bounds(gate, units.get(gate["metric"])),
                    with_unit(gate["value"], units.get(gate["metric"])),
                    gate["passed"],
                    gate["reason"],
                ]
                for gate in report["gates"]
            ],
        )

    if comparison := report.get("comparison"):
        say(f"Since {comparison['baseline']['name']}, run {comparison['baseline']['id']}:")
        _print_comparison(comparison)
    if redactions := report["redactions"]:
        say(f"masked: {', '.join(f'{kind} {count}' for kind, count in redactions.items())}")


def _print_comparison(comparison: JsonObject) -> None:
    if not comparison["same_dataset"]:
        say("The runs evaluated different data; records are paired by their ids.")
    columns = ("n", "baseline_mean", "candidate_mean", "difference", "ci_low", "ci_high")
    print_table(
        ["metric", "pairs", "baseline", "candidate", "difference", "95 % from", "to", "regressions", "fixes"],
        [
            [
                _name(metric),
                *(metric[name] for name in columns),
                metric["regressions_count"],
                metric["fixes_count"],
            ]
            for metric in comparison["metrics"]
        ],
    )
    for metric in comparison["not_compared"]:
        say(f"{metric['id']} is not compared: {metric['reason']}")


def _show_records(
    items: Iterator[JsonObject], columns: dict[str, Column], limit: int | None, *, as_lines: bool
) -> None:
    """Show what a run has of its records: all as they come, a line each, or the first as a list."""
    if as_lines:
        show_lines(islice(items, limit))
        return
    shown, is_cut = take(items, limit or _USUAL_LIMIT)
    show_list(shown, columns, is_cut=is_cut)


def _name(metric: JsonObject) -> str:
    """Name a metric with the unit of its numbers, once for all of its columns: a terminal is narrow."""
    unit = metric.get("unit")
    return metric["id"] if unit in (None, metric["id"]) else f"{metric['id']}, {unit}"


def _bounds(gate: JsonObject, unit: str | None) -> str:
    low, high = gate["min"], gate["max"]
    parts = [f">= {with_unit(low, unit)}"] if low is not None else []
    parts += [f"<= {with_unit(high, unit)}"] if high is not None else []
    return " and ".join(parts)


def _describe_data(run: Any) -> str:
    if dataset := run["dataset"]:
        return f"{dataset['name']}@{dataset['version']}"
    return f"{run['source']['id']} {run['source']['window_start']}" if run.get("source") else ""


def _describe_progress(run: Any) -> str:
    return f"{run['progress']['done']}/{run['progress']['total']}"


def _read_dataset(named: str) -> JsonObject:
    name, at, version = named.partition("@")
    if at:
        if not version.isdecimal():
            raise ConfigurationError(f"--dataset {named}: the version is a number, such as {name}@3.")
        return {"name": name, "version": int(version)}
    return {"sha256": named} if is_sha256(named) else {"name": named}


def _read_labels(body: JsonObject) -> JsonObject:
    labels = body.get("labels") or {}
    if not isinstance(labels, dict):
        raise ConfigurationError("The file's labels are no `key: value` lines, so that --label cannot add to them.")
    return cast("JsonObject", labels)


def _form_of(output: Path | None) -> str:
    endings = {".html": "html", ".md": "md", ".xml": "junit", ".json": "json"}
    form = endings.get(output.suffix.lower()) if output else None
    if form is None:
        raise ConfigurationError("Say the --format of the report, or end the file in .html, .md, .xml or .json.")
    return form
