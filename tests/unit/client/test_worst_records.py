"""The report on a terminal: what its worst records say, cut to the width, and nothing that a terminal obeys."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from evalward.command_line import worst_records
from evalward.command_line.exit_codes import ExitCode
from rich.console import Console

from .conftest import Call, Service

METRIC = {
    "id": "exact",
    "n": 9,
    "mean": 0.5,
    "ci_low": 0.25,
    "ci_high": 0.75,
    "skipped": 0,
    "errors": 0,
    "coverage": 1.0,
}
LATENCY = {**METRIC, "id": "latency", "unit": "ms", "mean": 965.4, "ci_low": 900.0, "ci_high": 1030.0}
RESULT = {"evaluator": "exact", "trial": 1, "status": "scored", "score": 0.0, "passed": False, "error": None}


def excerpts(text: str, *, is_cut: bool = False) -> dict[str, Any]:
    excerpt = {"text": text, "is_cut": is_cut}
    return {"input": excerpt, "output": excerpt, "reference": None, "record_path": None, "output_path": None}


def report(**fields: Any) -> httpx.Response:
    gate = {
        "metric": "latency",
        "stat": "mean",
        "min": None,
        "max": 1500.0,
        "value": 965.4,
        "passed": True,
        "reason": None,
    }
    empty = {"metrics": [METRIC, LATENCY], "gates": [gate], "worst": [], "redactions": {}}
    return httpx.Response(200, json=empty | fields)


def test_worst_records_are_quoted_on_a_line_each(service: Service, call: Call) -> None:
    worst = [
        RESULT | {"record": "r1", "excerpts": excerpts("How do I\npay?", is_cut=True)},
        RESULT | {"record": "r2", "status": "error", "score": None, "passed": None, "error": "it failed", "trial": 2},
        RESULT | {"record": "r3", "evaluator": "latency", "score": 2000.0, "passed": None},
    ]
    service.answers = [report(worst=worst)]
    ended = call("runs", "report", "r-1")
    assert ended.status == ExitCode.DONE
    lines = ended.out.splitlines()
    at = lines.index("worst of exact")
    assert lines[at + 1 :] == [
        "r1  failed  0",
        "  input      How do I pay? …",
        "  output     How do I pay? …",
        "r2  error  trial 2",
        "  why        it failed",
        "worst of latency",
        "r3  scored  2000 ms",
    ]
    assert dict(service.requests[0].url.params) == {"baseline": "previous", "excerpts": "true"}


def test_numbers_carry_their_unit(service: Service, call: Call) -> None:
    service.answers = [report()]
    shown = call("runs", "report", "r-1").out
    for text in ("latency, ms ", "965.4 ms", "<= 1500 ms"):
        assert text in shown
    assert "exact, " not in shown


@pytest.mark.parametrize("width", [20, 40, 200])
def test_texts_are_cut_to_the_width_of_the_terminal(
    service: Service, call: Call, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    text = "漢字 " * 60
    service.answers = [report(worst=[RESULT | {"record": "r" * 150, "excerpts": excerpts(text)}])]
    monkeypatch.setattr(worst_records, "out", lambda: Console(width=width, no_color=True))
    lines = call("runs", "report", "r-1").out.splitlines()
    shown = lines[lines.index("worst of exact") + 1 :]
    assert len(shown) == 3
    for line in shown:
        assert sum(2 if ord(character) > 0x3000 else 1 for character in line) <= width
        assert line.endswith("…") or width == 200


def test_five_of_a_metric_are_shown(service: Service, call: Call) -> None:
    service.answers = [report(worst=[RESULT | {"record": f"r{at}"} for at in range(9)])]
    lines = call("runs", "report", "r-1").out.splitlines()
    assert [f"r{at}  failed  0" in lines for at in range(9)] == [True] * 5 + [False] * 4
    assert "  and 4 more: --format json" in lines


def test_nothing_of_a_quoted_text_is_obeyed(service: Service, call: Call) -> None:
    hostile = "[bold]a[/] \x1b[2J\x9b1m\u202egnp \N{SNAKE}:snake:"
    worst = [RESULT | {"record": hostile, "evaluator": hostile, "excerpts": excerpts(hostile)}]
    service.answers = [report(worst=worst)]
    shown = call("runs", "report", "r-1").out
    assert not set(shown) & {"\x1b", "\x9b", "\u202e"}
    assert shown.count("[bold]a[/] \ufffd[2J\ufffd1m\ufffdgnp \N{SNAKE}:snake:") == 4


def test_what_is_not_quoted_is_told(service: Service, call: Call) -> None:
    missing = {"results": 1, "code": "not_permitted", "detail": "This key may not read records."}
    service.answers = [report(worst=[RESULT | {"record": "r1"}], excerpts_missing=missing)]
    assert "1 record is not quoted: This key may not read records.\n" in call("runs", "report", "r-1").err


@pytest.mark.parametrize("extra", [(), ("--format", "md"), ("--format", "html")])
def test_records_are_not_quoted_when_they_should_not_be(service: Service, call: Call, extra: tuple[str, ...]) -> None:
    service.answers = [report(worst=[RESULT | {"record": "r1"}])]
    assert call("runs", "report", "r-1", "--no-excerpts", *extra).status == ExitCode.DONE
    assert "excerpts" not in service.requests[0].url.params


def test_the_end_of_a_run_that_was_waited_for_quotes_nothing(service: Service, call: Call) -> None:
    run = {"id": "r-1", "state": "succeeded", "progress": {"total": 1, "done": 1}, "error": None, "name": "n"}
    service.answers = [httpx.Response(200, json=run), report(worst=[RESULT | {"record": "r1"}])]
    assert call("runs", "wait", "r-1").status == ExitCode.DONE
    assert all("excerpts" not in request.url.params for request in service.requests)
