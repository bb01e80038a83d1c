"""What a command prints: documents and tables on the standard output, everything else on the standard error."""

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from evalward.command_line.exit_codes import ExitCode
from evalward.errors import ConfigurationError

# Without a terminal there is no width to keep to.
_PLAIN_WIDTH = 240
# What people copy, and what they compare at a glance: kept on one line while the other columns have room.
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?Z")
_GAP = 3
_ROOM = 8
_CELL_CHARACTERS = 80
# What a terminal would act on: a text of somebody else's is shown, never obeyed.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

type Column = str | Callable[[Mapping[str, Any]], Any]


@dataclass(slots=True)
class Output:
    """How the command prints.

    Attributes
    ----------
    is_json
        Whether documents and errors are printed as JSON.
    """

    is_json: bool = False


class _StandardOutput(io.FileIO):
    """The standard output, whose reader may have gone: `| head` is no fault of ours."""

    def write(self, content: Any, /) -> int | None:
        """Write, or end the command when nobody reads any more.

        Raises
        ------
        SystemExit
            The reader has gone.
        ConfigurationError
            It cannot be written, such as when the disk is full.
        """
        try:
            return super().write(content)
        except OSError as error:
            # What is left in the buffers goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            if isinstance(error, BrokenPipeError):
                raise SystemExit(ExitCode.OUTPUT_CLOSED) from None
            raise ConfigurationError(f"The standard output cannot be written: {error.strerror}.") from error


def open_output() -> None:
    """Make the standard output end the command when its reader goes, and take every character.

    A character that its encoding lacks is written as an escape. Where the standard output is another stream already
    (tests), it stays.
    """
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - until the process ends
    if sys.stdout is not sys.__stdout__:
        return
    sys.stdout.flush()
    raw = _StandardOutput(sys.stdout.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=sys.stdout.encoding,
        errors="backslashreplace",
        line_buffering=sys.stdout.isatty(),
    )


OUTPUT = Output()
"""Of this process, which runs one command."""


def show(document: Any, summary: Callable[[], None]) -> None:
    """Print a document as JSON if that was asked for, else what `summary` prints."""
    if OUTPUT.is_json:
        print_json(document)
    else:
        summary()


def show_done(what: str, name: str) -> None:
    """Say what was done to something that is gone now, such as `deleted`."""
    show({what: name}, lambda: say(f"{what.capitalize()} {name}."))


def show_fields(document: Mapping[str, Any], names: Sequence[str] | None = None) -> None:
    """Print a document as JSON if that was asked for, else its fields one a line."""

    def summary() -> None:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for name in names or document:
            if document.get(name) not in (None, "", [], {}):
                table.add_row(name, as_text(document[name]))
        out().print(table)

    show(document, summary)


def show_list(items: Sequence[Mapping[str, Any]], columns: Mapping[str, Column], *, is_cut: bool = False) -> None:
    """Print a list as JSON (`items`, `more`) if that was asked for, else as a table.

    Parameters
    ----------
    items
        What to list.
    columns
        Heading -> name of a field, or what makes the cell.
    is_cut
        Whether there are more.
    """

    def summary() -> None:
        if not items:
            say("None.")
            return
        print_table(list(columns), [[_cell(item, column) for column in columns.values()] for item in items])
        if is_cut:
            say("There are more: see --limit.")

    show({"items": list(items), "more": is_cut}, summary)


def show_lines(items: Iterable[Mapping[str, Any]]) -> None:
    """Print items as they come, one line of JSON each."""
    for item in items:
        print_json_line(item)


def show_ids(items: Sequence[Mapping[str, Any]]) -> None:
    """Print the ids of items, one a line."""
    sys.stdout.writelines(f"{item['id']}\n" for item in items)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: instants to the second, ids and instants on one line where there is room."""
    console = out()
    cells = [
        [_INSTANT.sub(r"\1Z", text) if _INSTANT.fullmatch(text) else text for text in map(as_text, row)] for row in rows
    ]
    whole = _find_whole_columns([headings, *cells], console.width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, heading in enumerate(headings):
        table.add_column(heading, overflow="fold", no_wrap=place in whole)
    for row in cells:
        table.add_row(*row)
    console.print(table)


def _find_whole_columns(lines: Sequence[Sequence[str]], width: int) -> set[int]:
    """Return the places of the columns that are not to be broken: ids, then instants, as far as they fit."""
    columns = list(enumerate(zip(*lines, strict=True)))
    widths = [max(map(len, texts)) for _, texts in columns]
    left = width - sum(_GAP + min(_ROOM, widest) for widest in widths)
    whole: set[int] = set()
    for form in (_ID, _INSTANT):
        for place, (_, *texts) in columns:
            need = max(0, widths[place] - _ROOM)
            if any(texts) and all(form.fullmatch(text) for text in texts if text) and need <= left:
                whole.add(place)
                left -= need
    return whole


def print_json(document: Any) -> None:
    """Print JSON, two spaces, on the standard output."""
    lines = json.dumps(document, indent=2, ensure_ascii=_is_ascii()).split("\n")
    sys.stdout.writelines(_escape(line) + "\n" for line in lines)


def print_json_line(document: Any) -> None:
    """Print JSON in one line on the standard output."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=_is_ascii())
    sys.stdout.write(_escape(text) + "\n")


def _escape(line: str) -> str:
    # JSON itself escapes no control character beyond ASCII.
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def _is_ascii() -> bool:
    """Tell whether the standard output takes less than Unicode, so that JSON has to escape the rest."""
    return not (sys.stdout.encoding or "").lower().startswith("utf")


def write_file(path: Path, content: bytes) -> None:
    """Write what was asked for into a file.

    Raises
    ------
    ConfigurationError
        It cannot be written.
    """
    try:
        path.write_bytes(content)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from error


def say(text: str) -> None:
    """Print a sentence on the standard error."""
    notes().print(clean(text), markup=False, highlight=False, soft_wrap=True)


def out() -> Console:
    """Return a console on the standard output."""
    return _console(stderr=False)


def notes() -> Console:
    """Return a console on the standard error."""
    return _console(stderr=True)


def as_text(value: Any) -> str:
    """Return a cell's text."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case dict() | list():
            return clean(json.dumps(value, ensure_ascii=False))
        case _:
            return clean(str(value))


def as_cell(value: Any) -> str:
    """Return what somebody else wrote as the beginning of one line."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    text = " ".join(as_text(text).split())
    return text if len(text) <= _CELL_CHARACTERS else text[: _CELL_CHARACTERS - 1] + "…"


def clean(text: str) -> str:
    """Return a text in which nothing commands the terminal."""
    return "\n".join(_CONTROLS.sub("\N{REPLACEMENT CHARACTER}", line) for line in text.split("\n"))


def _cell(item: Mapping[str, Any], column: Column) -> Any:
    return item.get(column) if isinstance(column, str) else column(item)


def _console(*, stderr: bool) -> Console:
    # Square brackets in what others wrote are text.
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if console.is_terminal:
        return console
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, no_color=True, width=_PLAIN_WIDTH)
