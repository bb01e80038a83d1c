"""The worst records of a report on a terminal: a line a record, and below it what it says, a line each."""

from itertools import groupby
from typing import Any

from rich.text import Text

from evalward.command_line.output import as_text, clean, out, say
from evalward.transport import JsonObject

_SHOWN = 5
_WORDS = ("input", "output", "reference")
_MARGIN = 2
_WORD_WIDTH = max(map(len, _WORDS)) + 1


def print_worst(report: JsonObject) -> None:
    """Print the worst results of each metric, at most five, cut to the terminal's width."""
    if missing := report.get("excerpts_missing"):
        results = missing["results"]
        say(f"{results} {'record is' if results == 1 else 'records are'} not quoted: {missing['detail']}")
    units = {metric["id"]: metric.get("unit") for metric in report["metrics"]}
    for evaluator, group in groupby(report["worst"], key=lambda result: result["evaluator"]):
        results = list(group)
        _print_line(f"worst of {evaluator}", style="bold")
        for result in results[:_SHOWN]:
            _print_line(_describe(result, units.get(evaluator)))
            for word, text in _list_texts(result):
                _print_line(f"{'':{_MARGIN}}{word:{_WORD_WIDTH}} {text}")
        if len(results) > _SHOWN:
            _print_line(f"{'':{_MARGIN}}and {len(results) - _SHOWN} more: --format json", style="dim")


def with_unit(value: Any, unit: str | None) -> str:
    """Return a number as a cell has it, with its unit."""
    text = as_text(value)
    return f"{text} {unit}" if text and unit else text


def _describe(result: JsonObject, unit: str | None) -> str:
    outcome = result["status"]
    if outcome == "scored" and result["passed"] is not None:
        outcome = "passed" if result["passed"] else "failed"
    parts = [result["record"], outcome]
    if result["score"] is not None:
        parts.append(with_unit(result["score"], unit))
    if result["trial"] > 1:
        parts.append(f"trial {result['trial']}")
    return "  ".join(parts)


def _list_texts(result: JsonObject) -> list[tuple[str, str]]:
    excerpts = result.get("excerpts") or {}
    texts = [(word, excerpt) for word in _WORDS if (excerpt := excerpts.get(word))]
    return [
        *([("why", result["error"])] if result["error"] else []),
        *((word, f"{excerpt['text']} …" if excerpt["is_cut"] else excerpt["text"]) for word, excerpt in texts),
    ]


def _print_line(line: str, *, style: str = "") -> None:
    console = out()
    text = Text(clean(line.replace("\n", " ").replace("\t", " ")), style=style)
    text.truncate(console.width, overflow="ellipsis")
    console.print(text, soft_wrap=True)
