"""The main job, told step by step on the terminal: `evalward-local demo`.

Every step checks what it says: the demonstration ends with status 0 only when all of it was true.
"""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import boto3
import httpx
import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from evalward_local.demo_keeper import KEEPER_PARAMETERS, tell_health, tell_sweep
from evalward_local.demo_sample import (
    EVALUATORS,
    GATES,
    ExpectedMetric,
    compute_expected,
    make_parquet,
    parse_rows,
    read_sample,
)
from evalward_local.demo_source import SourceStoryError, tell_source
from evalward_local.running_stack import PROJECT_FOLDER, running_stack
from evalward_local.stack import StackStartError
from evalward_local.stack_client import StackClient
from evalward_local.stack_file import StackFile, read_stack_file

_PROJECT = "demo"
_DATASET = "support-answers"
_IDEMPOTENCY_KEY = "demo-run-1"
_PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 0.1
_PLAIN_WIDTH = 110
_SHOWN_CHARACTERS = 500
_END_STATES = ("succeeded", "failed", "error", "cancelled")


class StepFailedError(Exception):
    """A step did not do what it says; the message is what was seen instead."""


def demo(
    state: Annotated[Path | None, typer.Option(help="Folder for logs and the report; .local/demo by default.")] = None,
) -> None:
    """Run the main job on a stack of its own and check every step of it."""
    raise typer.Exit(run_demo(state or PROJECT_FOLDER / ".local" / "demo"))


def run_demo(state_folder: Path, console: Console | None = None) -> int:
    """Start a stack, play the main job and stop the stack.

    Parameters
    ----------
    state_folder
        Receives the logs, `report.json` and `report.html`; what an earlier demonstration left there is removed.
    console
        Where to tell it; the standard output by default. Without a terminal it gets plain lines.

    Returns
    -------
    int
        Exit status: 0 when every step did what it says, else 1.
    """
    console = console or _make_console()
    teller = _Teller(console)
    started_at = time.monotonic()
    try:
        _play(state_folder.resolve(), teller)
    except (
        StepFailedError,
        SourceStoryError,
        StackStartError,
        httpx.HTTPError,
        BotoCoreError,
        ClientError,
        OSError,
    ) as error:
        seen = str(error) or type(error).__name__
        console.print(f"\nFAILED at step {teller.number}, {teller.title}:", style="bold red", markup=False)
        console.print(f"  {seen}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"  Logs: {state_folder / 'logs'}", markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print(f"\nAll of it was checked, in {time.monotonic() - started_at:.0f} s.", style="bold green")
    console.print("Next: make up, and the walk in README.md.")
    return 0


def _make_console() -> Console:
    console = Console(highlight=False)
    # Without a terminal rich takes 80 columns, which is too narrow for the report.
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH, no_color=True)


class _Teller:
    """Tells steps and what was seen, and knows where the story stands."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.number = 0
        self.title = "preparation"

    def begin(self, title: str) -> None:
        self.number += 1
        self.title = title
        self.console.print(f"\n{self.number}. {title}", style="bold", markup=False)

    def say(self, text: str) -> None:
        self.console.print(f"   {text}", markup=False, soft_wrap=True)


def _fail(message: str) -> NoReturn:
    raise StepFailedError(message)


def _play(state_folder: Path, teller: _Teller) -> None:
    if running := read_stack_file(state_folder):
        _fail(f"another stack uses {state_folder} (pid {running.pid}); give this one a folder with --state")
    shutil.rmtree(state_folder / "logs", ignore_errors=True)
    sample = read_sample()
    teller.begin("Start the whole bundle on this machine: no Docker, no account")
    with running_stack(state_folder, parameters=KEEPER_PARAMETERS) as stack:
        teller.say(f"API {stack.api_url}, PostgreSQL, bucket {stack.bucket}, queues, {len(stack.functions)} functions")
        _Story(stack, state_folder, teller, sample).tell()
        teller.begin("Stop the stack")
    if read_stack_file(state_folder) is not None:
        _fail("its stack.json is still there")
    teller.say("Its database, objects and messages are gone; the logs and the report stay.")


class _Story:
    def __init__(self, stack: StackFile, state_folder: Path, teller: _Teller, sample: bytes) -> None:
        self._stack = stack
        self._state_folder = state_folder
        self._teller = teller
        self._say = teller.say
        self._sample = sample
        self._rows = parse_rows(sample)
        self._http = httpx.Client(base_url=stack.api_url, trust_env=False, timeout=_PATIENCE_SECONDS)
        self._key = stack.admin_key

    def tell(self) -> None:
        with self._http:
            self._teller.begin("Create a project, and a key that may work in it and nothing else")
            self._make_project_and_key()
            self._teller.begin(f"Drop a Parquet file into datasets/incoming/{_PROJECT}/")
            self._drop_file()
            self._teller.begin("Watch it become a dataset")
            dataset = self._watch_import()
            self._teller.begin("Start a run under an Idempotency-Key")
            order = {
                "name": "support answers",
                "dataset": {"name": _DATASET},
                "evaluators": EVALUATORS,
                "gates": GATES,
            }
            first = self._start_run(order)
            run = self._watch_run(str(first.json()["id"]))
            self._teller.begin("Send the same request again, as a client does that got no answer")
            self._repeat_run(order, first)
            self._teller.begin("Send another request under the same key")
            self._change_run(order)
            self._teller.begin("Read the report")
            report_path = f"/v1/projects/{_PROJECT}/runs/{run['id']}/report"
            self._read_report(report_path)
            self._teller.begin("Let a scheduled source pull traces, redact and evaluate them")
            with StackClient(self._stack) as client:
                self._teller.console.print(tell_source(client, _PROJECT, self._key, self._say))
                self._teller.begin("Sweep the mechanics of what has ended")
                tell_sweep(client, self._say)
                self._teller.begin("Ask the doctor")
                self._teller.console.print(tell_health(client, self._say))
            self._teller.begin("Where things are")
            self._say(f"dataset  s3://{self._stack.bucket}/{dataset['path']}")
            self._say(f"run      {run['id']}")
            self._say(f"report   GET {report_path}")
            self._say(f"         {self._state_folder / 'report.json'}")
            self._say(f"         {self._state_folder / 'report.html'}, for a browser")
            self._say(f"logs     {self._state_folder / 'logs'}")

    def _make_project_and_key(self) -> None:
        self._call("POST", "/v1/projects", 201, json={"id": _PROJECT, "description": "demonstration"})
        self._say(f"POST /v1/projects: 201, project {_PROJECT}")
        body = {"name": "demonstration", "grants": [{"project": _PROJECT, "role": "editor"}]}
        key = self._call("POST", "/v1/keys", 201, json=body).json()
        self._key = key["secret"]
        self._say(f"POST /v1/keys: 201, role editor in {_PROJECT}; its secret is in this answer and nowhere else")
        me = self._call("GET", "/v1/whoami", 200).json()
        if me["principal"] != f"key:{key['id']}":
            _fail(f"whoami says {me['principal']}, not key:{key['id']}")
        refused = self._call("POST", "/v1/projects", 403, json={"id": "another"}).json()
        self._say(f"with that key, POST /v1/projects: 403 {refused['code']}")

    def _drop_file(self) -> None:
        parquet = make_parquet(self._rows)
        key = f"datasets/incoming/{_PROJECT}/{_DATASET}.parquet"
        s3 = boto3.client(
            "s3",
            endpoint_url=self._stack.aws_endpoint_url,
            region_name=self._stack.region,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - the stack checks no signature
        )
        s3.put_object(Bucket=self._stack.bucket, Key=key, Body=parquet)
        self._say(f"s3://{self._stack.bucket}/{key}: {len(self._rows)} answers of a support assistant")

    def _watch_import(self) -> dict[str, Any]:
        path = f"/v1/projects/{_PROJECT}/imports"
        seen: list[str] = []

        def has_ended() -> dict[str, Any] | None:
            items = self._call("GET", path, 200).json()["items"]
            if items and items[0]["state"] not in seen:
                seen.append(items[0]["state"])
            return items[0] if items and items[0]["state"] in ("succeeded", "failed") else None

        ended = self._wait(has_ended, "the import to end", lambda: f"states seen: {', '.join(seen) or 'no import'}")
        if ended["state"] != "succeeded":
            _fail(f"the import ended as {ended['state']}: {json.dumps(ended['error'])}")
        dataset = self._call("GET", f"/v1/projects/{_PROJECT}/datasets/{_DATASET}@1", 200).json()
        if dataset["records"] != len(self._rows):
            _fail(f"the dataset has {dataset['records']} records, the file has {len(self._rows)}")
        self._say(f"{_DATASET}@1: {dataset['records']} records, {dataset['bytes']} bytes of canonical JSONL")
        content_path = f"/v1/projects/{_PROJECT}/datasets/{_DATASET}@1/content"
        location = self._call("GET", content_path, 307).headers["location"]
        content = httpx.get(location, trust_env=False, timeout=_PATIENCE_SECONDS).raise_for_status().content
        digest = hashlib.sha256(content).hexdigest()
        if not digest == dataset["sha256"] == ended["dataset"]["sha256"]:
            _fail(f"the dataset says sha256 {dataset['sha256']}, its content has {digest}")
        self._say(f"sha256 {digest}, computed again from what is in the bucket")
        twin = self._http.post(
            f"/v1/projects/{_PROJECT}/datasets",
            params={"name": _DATASET, "format": "jsonl", "validate_only": "true"},
            content=self._sample,
            headers={"authorization": f"Bearer {self._key}", "content-type": "application/octet-stream"},
        )
        if twin.status_code != 200 or twin.json()["sha256"] != digest:
            _fail(f"the same rows as JSONL: {twin.status_code} {twin.text[:_SHOWN_CHARACTERS]}")
        self._say("the same rows as JSONL (validate_only): the same sha256")
        return dataset

    def _start_run(self, order: Mapping[str, Any]) -> httpx.Response:
        first = self._send_run(order, 202)
        self._say(f"POST /v1/projects/{_PROJECT}/runs, Idempotency-Key: {_IDEMPOTENCY_KEY}: 202")
        return first

    def _watch_run(self, run_id: str) -> dict[str, Any]:
        path = f"/v1/projects/{_PROJECT}/runs/{run_id}"
        progress = Progress(
            TextColumn("  "), BarColumn(), MofNCompleteColumn(), TextColumn("records"), console=self._teller.console
        )
        # Without a terminal a bar is a line that says nothing.
        progress.disable = not self._teller.console.is_terminal
        with progress:
            task = progress.add_task("records", total=len(self._rows))
            last: dict[str, Any] = {}

            def has_ended() -> dict[str, Any] | None:
                nonlocal last
                last = self._call("GET", path, 200).json()
                progress.update(task, completed=last["progress"]["done"])
                return last if last["state"] in _END_STATES else None

            run = self._wait(has_ended, "the run to end", lambda: f"it is {last['state']}, {last['progress']}")
        if run["state"] != "succeeded":
            _fail(f"the run ended as {run['state']}: error {run['error']}, gates {run['gates']}")
        counts = run["progress"]
        if counts["done"] != len(self._rows) or counts["errors"] != 0:
            _fail(f"the run's progress is {counts}")
        self._say(
            f"{run['state']}: {counts['done']} of {counts['total']} records, {counts['scored']} scores, "
            f"{counts['skipped']} skipped, {counts['errors']} errors"
        )
        return run

    def _repeat_run(self, order: Mapping[str, Any], first: httpx.Response) -> None:
        second = self._send_run(order, first.status_code)
        if second.headers.get("idempotency-replayed") != "true":
            _fail(f"no Idempotency-Replayed: true among the headers {dict(second.headers)}")
        if second.content != first.content:
            _fail(f"another body: {second.text[:_SHOWN_CHARACTERS]} instead of {first.text[:_SHOWN_CHARACTERS]}")
        runs = self._call("GET", f"/v1/projects/{_PROJECT}/runs", 200).json()["items"]
        if len(runs) != 1:
            _fail(f"there are {len(runs)} runs")
        self._say(f"{second.status_code}, Idempotency-Replayed: true, the same body byte for byte; still one run")

    def _change_run(self, order: Mapping[str, Any]) -> None:
        problem = self._send_run({**order, "name": "support answers, changed"}, 422).json()
        if problem["code"] != "idempotency_key_reused":
            _fail(f"code {problem['code']} instead of idempotency_key_reused")
        self._say(f"422 {problem['code']}: {problem['detail']}")

    def _read_report(self, path: str) -> None:
        answer = self._call("GET", f"{path}?excerpts=true", 200)
        (self._state_folder / "report.json").write_bytes(answer.content)
        page = self._call("GET", f"{path}?format=html&excerpts=true", 200)
        (self._state_folder / "report.html").write_bytes(page.content)
        report = answer.json()
        self._show_report(report)
        expected = compute_expected(self._rows)
        metrics = {metric["id"]: metric for metric in report["metrics"]}
        if list(metrics) != list(expected):
            _fail(f"the metrics are {list(metrics)} instead of {list(expected)}")
        for name, metric in metrics.items():
            _check_metric(name, metric, expected[name], len(self._rows))
        if not report["passed"] or not all(gate["passed"] for gate in report["gates"]):
            _fail(f"a gate failed: {report['gates']}")
        self._say("Counts and means equal those of a plain computation over the file; every gate passed.")
        self._show_worst(report["worst"], {metric["id"]: metric["unit"] for metric in report["metrics"]})

    def _show_report(self, report: Mapping[str, Any]) -> None:
        table = Table(box=SIMPLE, pad_edge=False)
        table.add_column("   metric")
        for title in ("mean", "95 % interval", "scored", "skipped", "errors", "coverage"):
            table.add_column(title, justify="right")
        for metric in report["metrics"]:
            table.add_row(
                f"   {metric['id']}",
                _format(metric["mean"], metric["unit"]),
                f"{_format(metric['ci_low'])} to {_format(metric['ci_high'], metric['unit'])}",
                str(metric["scored"]),
                str(metric["skipped"]),
                str(metric["errors"]),
                f"{metric['coverage']:.1%}",
            )
        self._teller.console.print(table)
        table = Table(box=SIMPLE, pad_edge=False)
        table.add_column("   gate")
        for title in ("bound", "value", "result"):
            table.add_column(title, justify="right")
        units = {metric["id"]: metric["unit"] for metric in report["metrics"]}
        for gate in report["gates"]:
            low, high, unit = gate["min"], gate["max"], units[gate["metric"]]
            bound = f">= {_format(low, unit)}" if low is not None else f"<= {_format(high, unit)}"
            result = "passed" if gate["passed"] else f"failed: {gate['reason']}"
            table.add_row(f"   {gate['metric']} {gate['stat']}", bound, _format(gate["value"], unit), result)
        self._teller.console.print(table)
        usage = report["usage"]
        self._say(
            f"{usage['input_tokens']} input and {usage['output_tokens']} output tokens, ${usage['cost_usd']:.4f}, "
            f"{report['records']} records"
        )

    def _show_worst(self, worst: list[dict[str, Any]], units: Mapping[str, str | None]) -> None:
        """Show one record a metric, and check that each is quoted as the file has it."""
        rows = {row["id"]: row for row in self._rows}
        shown: set[str] = set()
        for result in worst:
            row, excerpts = rows[result["record"]], result["excerpts"]
            asked, answered = excerpts["input"]["text"], excerpts["output"]["text"]
            if (asked, answered) != (row["question"], row["response"]):
                _fail(f"{result['record']} is quoted as {json.dumps(excerpts)[:_SHOWN_CHARACTERS]}")
            if result["evaluator"] not in shown:
                shown.add(result["evaluator"])
                score = _format(result["score"], units[result["evaluator"]])
                self._say(f"worst of {result['evaluator']}: {result['record']}, score {score}")
                self._say(f"  asked     {asked}")
                self._say(f"  answered  {answered}")
        whole = self._call("GET", worst[0]["excerpts"]["record_path"], 200).json()["items"][0]
        if whole["id"] != worst[0]["record"]:
            _fail(f"the whole record of {worst[0]['record']} is {whole['id']}")

    def _send_run(self, order: Mapping[str, Any], status: int) -> httpx.Response:
        headers = {"idempotency-key": _IDEMPOTENCY_KEY}
        return self._call("POST", f"/v1/projects/{_PROJECT}/runs", status, json=order, headers=headers)

    def _call(
        self, method: str, path: str, status: int, *, json: Any = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Call the API and insist on a status."""
        sent = {"authorization": f"Bearer {self._key}", **(headers or {})}
        answer = self._http.request(method, path, json=json, headers=sent)
        if answer.status_code != status:
            _fail(
                f"{method} {path} answered {answer.status_code} instead of {status}: {answer.text[:_SHOWN_CHARACTERS]}"
            )
        return answer

    def _wait[Result](self, look: Callable[[], Result | None], what: str, describe: Callable[[], str]) -> Result:
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            if (found := look()) is not None:
                return found
            time.sleep(_POLL_SECONDS)
        _fail(f"waited {_PATIENCE_SECONDS:.0f} s for {what}; {describe()}")


def _check_metric(name: str, metric: Mapping[str, Any], expected: ExpectedMetric, records: int) -> None:
    counts = (metric["n"], metric["scored"], metric["skipped"], metric["errors"])
    if counts != (expected.scored, expected.scored, records - expected.scored, 0):
        _fail(f"{name}: n, scored, skipped, errors are {counts}; the file has {expected.scored} records to score")
    if not math.isclose(metric["mean"], expected.mean, rel_tol=1e-12):
        _fail(f"{name}: mean {metric['mean']}, a plain computation gives {expected.mean}")
    if not metric["ci_low"] <= metric["mean"] <= metric["ci_high"]:
        _fail(f"{name}: the mean {metric['mean']} is outside of {metric['ci_low']} to {metric['ci_high']}")


def _format(value: float | None, unit: str | None = None) -> str:
    if value is None:
        return "-"
    text = f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{text} {unit}" if unit else text
