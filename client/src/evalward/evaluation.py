"""Score a few records at once, without a run: the frames of `/evaluate`, held to the lines of a file.

One request: at most 4 MiB, and as many records as the service takes in one (its refusal says how many). The answer has
at most 6 MB. So nothing here grows with what is sent.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

from evalward.errors import ConfigurationError, ProblemError
from evalward.transport import JsonObject, Transport, Write

MAX_BYTES = 4 * 1024 * 1024
"""Of a request, settings included."""

_NDJSON = "application/x-ndjson"
_SETTINGS = '{"evaluators": [{"name": "exact_match"}]}'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Frames:
    """A request that was read.

    Attributes
    ----------
    content
        The settings, then one record a line.
    lines
        The line in the file of each frame, from 1; None for settings that stand in none.
    """

    content: bytes
    lines: list[int | None]

    @property
    def has_target(self) -> bool:
        """Whether outputs are fetched: then a second time is seen by somebody."""
        return "target" in json.loads(self.content.partition(b"\n")[0])


def read_frames(stream: IO[bytes], name: str, settings: Mapping[str, Any] | None = None) -> Frames:
    """Read records line by line, and no more than one request takes.

    Parameters
    ----------
    stream
        One record a line; empty lines are passed over.
    name
        Of the file, for people.
    settings
        `evaluators` and `target`; None when they are the first line of the stream.

    Raises
    ------
    ConfigurationError
        There is nothing to evaluate, or no settings, or more than one request takes.
    """
    frames: list[bytes] = []
    lines: list[int | None] = []
    if settings is not None:
        frames.append(json.dumps(settings).encode())
        lines.append(None)
    size, number = sum(map(len, frames)), 0
    while line := stream.readline(MAX_BYTES + 1):
        number += 1
        text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
        text = text.strip()
        if not text:
            continue
        size += len(text) + 1
        if size > MAX_BYTES:
            raise ConfigurationError(
                f"{name}, line {number}: with it there are more than {MAX_BYTES} bytes. For so much, "
                "`evalward datasets publish` and `evalward runs create`."
            )
        frames.append(text)
        lines.append(number)
    if settings is None and frames and not _is_settings(frames[0]):
        raise ConfigurationError(
            f"{name}, line {lines[0]}: these are no settings, such as {_SETTINGS}. They stand in the first line unless "
            "they are given apart."
        )
    if len(frames) < 2:
        raise ConfigurationError(f"{name} holds no record: one a line is evaluated.")
    return Frames(b"\n".join(frames) + b"\n", lines)


def evaluate(
    transport: Transport, project: str, frames: Frames, idempotency_key: str | None = None
) -> Iterator[JsonObject]:
    """Evaluate, and yield the answer's frames: one a record, in order, then the summary.

    Raises
    ------
    ProblemError
        The API refused, or could not go on after the frames before; `errors` have the `line` of each fault.
    OutcomeUnknownError, UnreachableError, ConfigurationError, StaleWriteError
        As of every write.
    """
    write = Write(operation="evaluate", path={"project": project}, content=frames.content, answer=_NDJSON)
    try:
        with transport.hold(write, idempotency_key, is_harmless_twice=not frames.has_target) as held:
            answer = transport.write_under(held, write)
    except ProblemError as error:
        raise _place(error, frames.lines) from error
    for line in answer.iter_lines():
        frame = cast("JsonObject", json.loads(line))
        if problem := frame.get("error"):
            raise _place(ProblemError(problem), frames.lines)
        yield frame


def _is_settings(line: bytes) -> bool:
    try:
        settings = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(settings, dict) and "evaluators" in settings


def _place(error: ProblemError, lines: list[int | None]) -> ProblemError:
    """Return the error with lines instead of frames: `/3/id` is in the file's line of frame 3."""
    placed = list(_with_lines(error.errors, lines))
    document = error.document
    if placed:
        # The detail of the API names frames.
        detail = f"{len(placed)} thing{'s' if len(placed) > 1 else ''} to correct."
        document = {**document, "errors": placed, "detail": detail}
    return ProblemError(document, error.retry_after_seconds, about=error.about)


def _with_lines(faults: Iterable[Mapping[str, Any]], lines: list[int | None]) -> Iterator[JsonObject]:
    for fault in faults:
        frame, slash, rest = str(fault.get("pointer", "")).removeprefix("/").partition("/")
        if frame.isdecimal() and int(frame) < len(lines):
            yield {**fault, "pointer": slash + rest, "line": lines[int(frame)]}
        else:
            yield dict(fault)
