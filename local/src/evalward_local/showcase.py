"""A project with something of everything in it, for the console's tests and its pictures."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Any

from evalward_local.stack_client import StackClient

_EVALUATORS = [
    {"name": "token_f1"},
    {"name": "contains", "params": {"text": "settings", "ignore_case": True}},
    {"name": "latency", "params": {"max": 2000}},
    {"name": "tokens", "params": {"count": "output"}},
]
_DAYS = 21
_REASONS = {
    "missed_deadline": ("source_unavailable", "the store answered 503 until the starting deadline passed"),
    "working": ("trace_in_progress", "a trace has a span without end"),
}


@dataclass(frozen=True)
class Showcase:
    """What is in the project.

    Attributes
    ----------
    project
        Its id.
    baseline, candidate
        Ids of two ended runs of the same records; a gate of the candidate failed.
    failed_import
        Id of an import of a file with wrong rows.
    source
        Id of a source with three weeks of windows.
    webhook
        Id of a webhook that is told how runs end.
    """

    project: str
    baseline: str
    candidate: str
    failed_import: str
    source: str
    webhook: str


def fill_project(client: StackClient, project: str, webhook_url: str) -> Showcase:
    """Create the project, fill it and return when its runs and its import have ended.

    The webhook's address must be one that the stack may call. What the days before would have left is written into the
    ledger as the pull writes it: it cannot be waited for.
    """
    client.expect(201, "POST", "/v1/projects", json={"id": project, "description": "The support assistant"})
    client.expect(
        201, "POST", f"/v1/projects/{project}/webhooks",
        json={"id": "ci", "url": webhook_url, "events": ["run.finished", "run.gate_failed"]},
    )  # fmt: skip
    sample = files("evalward_local").joinpath("samples/support_answers.jsonl").read_text()
    rows: list[dict[str, Any]] = [json.loads(line) for line in sample.splitlines()]
    client.upload(project, "support-answers", rows)
    baseline = _run(client, project, "support answers, main branch", 1, [])
    client.upload(project, "support-answers", [_worsen(number, row) for number, row in enumerate(rows)])
    gates = [
        {"metric": "token_f1", "stat": "ci_low", "min": 0.8},
        {"metric": "latency", "stat": "mean", "max": 1500},
    ]
    candidate = _run(client, project, "support answers, shorter prompt", 2, gates)
    wrong = [*rows[:3], {"id": 7, "question": "How?"}, {"id": "ticket-9", "metadata": "none"}, {"id": "ticket-0001"}]
    key = client.drop(project, "tickets-of-may.jsonl", "".join(json.dumps(row) + "\n" for row in wrong).encode())
    failed_import = str(client.wait_for_import(project, key)["id"])
    for run in (baseline, candidate):
        client.wait_for_run(project, run)
    source = _make_source(client, project, [baseline, candidate])
    return Showcase(project, baseline, candidate, failed_import, source, "ci")


def _run(client: StackClient, project: str, name: str, version: int, gates: list[dict[str, Any]]) -> str:
    order = {
        "name": name,
        "dataset": {"name": "support-answers", "version": version},
        "evaluators": _EVALUATORS,
        "gates": gates,
        "labels": {"suite": "nightly"},
    }
    return str(client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)["id"])


def _worsen(number: int, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row as a hastier assistant would have answered it."""
    if number % 3:
        return row
    words = str(row["response"]).split()
    return {**row, "response": " ".join(words[: max(2, len(words) // 2)])}


def _make_source(client: StackClient, project: str, runs: list[str]) -> str:
    body = {
        "id": "nightly-support",
        "connector": "otlp_s3",
        "location": f"s3://{client.stack.bucket}/traces/{project}/",
        "schedule": {"cron": "0 2,14 * * *"},
        "window": {"seconds": 43_200},
        "evaluators": [{"name": "pii_leak"}, {"name": "tokens", "params": {"count": "output"}}],
    }
    client.expect(201, "POST", f"/v1/projects/{project}/sources", json=body)
    today = datetime.now(UTC).replace(hour=2, minute=0, second=0, microsecond=0)
    for back in range(2, 2 * _DAYS):
        tick = today - timedelta(hours=12 * back)
        state = {5: "working", 9: "missed_deadline", 10: "missed_deadline", 22: "missed_overlap", 30: "skipped"}.get(
            back
        )
        state = state or ("empty" if tick.weekday() >= 5 else "done")
        code, reason = _REASONS.get(state, (None, None))
        client.look(
            """
            INSERT INTO evals.source_windows
                (tenant_id, source_id, tick_at, window_start, window_end, state, attempts, traces, error_code, error,
                 trace_id, evaluation_id)
            VALUES (%(project)s, 'nightly-support', %(tick)s, %(start)s, %(tick)s, %(state)s, %(attempts)s, %(traces)s,
                    %(code)s, %(reason)s, %(trace)s, %(run)s)
            """,
            {
                "project": project,
                "tick": tick,
                "start": tick - timedelta(hours=12),
                "state": state,
                "attempts": 1 if state in ("done", "empty") else 12,
                "traces": {"done": 140 + 7 * back % 60, "empty": 0}.get(state),
                "code": code,
                "reason": reason,
                "trace": "4bf92f3577b34da6a3ce929d0e0e4736" if state == "working" else None,
                "run": runs[back % len(runs)] if state == "done" else None,
            },
        )
    client.look(
        """
        UPDATE evals.sources SET missed_deadline = found.deadline, missed_overlap = found.overlap,
            failed_attempts = found.failed
        FROM (SELECT count(*) FILTER (WHERE state = 'missed_deadline') AS deadline,
                  count(*) FILTER (WHERE state = 'missed_overlap') AS overlap,
                  sum(attempts) FILTER (WHERE state NOT IN ('done', 'empty')) AS failed
              FROM evals.source_windows WHERE tenant_id = %(project)s AND source_id = 'nightly-support') AS found
        WHERE tenant_id = %(project)s AND id = 'nightly-support'
        """,
        {"project": project},
    )
    return "nightly-support"
