"""A trace store behind HTTP: guarded calls that end with the pull, tried again while that helps, answers in JSON."""

import base64
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlencode

import orjson
from coordination.clock import Deadline
from coordination.ports.http_calls import (
    AnswerTooLargeError,
    HttpAnswer,
    HttpCalls,
    OutgoingFailedError,
    OutgoingRefusedError,
)

from scheduled_pull.otlp_json import OtlpError, read_json
from scheduled_pull.traces import PullFailedError

_CALL_SECONDS = 30.0
_SPARE_SECONDS = 1.0
_FIRST_WAIT_SECONDS = 0.5
_TRIES = 4
_MAX_ANSWER_BYTES = 32 * 1024 * 1024
# Read as objects it is several times as large in memory.
_MAX_READ_BYTES = 128 * 1024 * 1024
_MAX_PAGES = 1000
_MAX_LISTINGS = 5
_TOO_MANY_REQUESTS = 429
_MAY_PASS = frozenset({408, 425, _TOO_MANY_REQUESTS, 500, 502, 503, 504})
_OK, _NOT_FOUND = 200, 404

type Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list.

    Attributes
    ----------
    items
        What stands on it.
    next_token
        What the store wants to be told for the next page; None or empty: there is none.
    """

    items: list[Any]
    next_token: str | None


class TraceStore:
    """Makes the calls of one pull.

    Parameters
    ----------
    calls
        The guard of outgoing calls: every call looks the address up and checks it again.
    project
        Whose source it is.
    endpoint
        Root of the store, with or without a path.
    read_authorization
        Returns the Authorization header, or None for a store that wants none; read at the first call.
    deadline
        Of the pull.
    wait
        Sleeps; seconds.
    """

    def __init__(
        self,
        calls: HttpCalls,
        project: str,
        endpoint: str,
        read_authorization: Callable[[], str | None],
        deadline: Deadline,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self._calls = calls
        self._project = project
        self._endpoint = endpoint.rstrip("/")
        self._read_authorization = read_authorization
        self._deadline = deadline
        self._wait = wait
        self._headers: dict[str, str] | None = None
        self._read_bytes = 0

    def call(self, path: str, query: Query = (), body: Any = None, *, passed: frozenset[int] = frozenset()) -> Any:
        """Call the store and return its JSON, or the status when it is among `passed`.

        Parameters
        ----------
        path
            Below the endpoint, encoded, with a slash at its start.
        query
            Names and values.
        body
            Sent with POST as JSON; None: GET.
        passed
            Statuses that the caller understands; they are not tried again.

        Raises
        ------
        PullFailedError
            The address may not be called, the store refuses, does not answer in the time of the pull, or answers too
            much or nothing that can be read.
        """
        target = f"{path}?{urlencode(query)}" if query else path
        content = None if body is None else orjson.dumps(body)
        tries = 0
        while True:
            tries += 1
            wait_seconds: float | None = None
            try:
                answer = self._send(target, content)
            except AnswerTooLargeError as error:
                raise PullFailedError("answer_too_large", f"The store's answer is too large: {error}.") from error
            except OutgoingRefusedError as error:
                raise PullFailedError("endpoint_refused", f"The endpoint may not be called: {error}.") from error
            except OutgoingFailedError as error:
                problem = str(error)
            else:
                if answer.status == _OK:
                    return self._parse(answer)
                if answer.status in passed:
                    return answer.status
                _refuse(answer)
                problem = f"the store answered with status {answer.status}"
                wait_seconds = answer.retry_after_seconds()
            # A store that says when to come again is asked again then, however often.
            if tries >= _TRIES and wait_seconds is None:
                raise PullFailedError("store_unavailable", f"{_sentence(problem)}, {tries} times over.")
            # `Retry-After: 0` is no leave to call as fast as can be.
            backoff_seconds = _FIRST_WAIT_SECONDS * 2 ** min(tries - 1, 6)
            self._sleep(problem, backoff_seconds if wait_seconds is None else max(wait_seconds, _FIRST_WAIT_SECONDS))

    def _send(self, target: str, content: bytes | None) -> HttpAnswer:
        if self._headers is None:
            authorization = self._read_authorization()
            self._headers = {"accept": "application/json"} | ({"authorization": authorization} if authorization else {})
        remaining = self._deadline.remaining_seconds()
        if remaining <= 0:
            raise PullFailedError(
                "pull_timeout", "The store was not read in the time of a pull; take a shorter window."
            )
        destination = self._calls.resolve(self._project, self._endpoint)
        root = destination.path.rstrip("/")
        return self._calls.send(
            "GET" if content is None else "POST",
            replace(destination, path=f"{root}{target}"),
            content,
            self._headers | ({} if content is None else {"content-type": "application/json"}),
            timeout_seconds=min(_CALL_SECONDS, remaining),
            max_bytes=_MAX_ANSWER_BYTES,
        )

    def _parse(self, answer: HttpAnswer) -> Any:
        self._read_bytes += len(answer.body)
        if self._read_bytes > _MAX_READ_BYTES:
            raise PullFailedError(
                "answers_too_large",
                f"The window's traces have more than {_MAX_READ_BYTES} bytes; take a shorter window.",
            )
        try:
            return read_json(answer.body)
        except OtlpError as error:
            raise PullFailedError("answer_not_usable", "The store answered something else than JSON.") from error

    def _sleep(self, problem: str, seconds: float) -> None:
        if seconds > self._deadline.remaining_seconds() - _SPARE_SECONDS:
            raise PullFailedError(
                "store_unavailable", f"{_sentence(problem)}; waiting {seconds:g} s for it is more than a pull has left."
            )
        self._wait(seconds)


def walk_pages(read_page: Callable[[str | None], Page]) -> Iterator[list[Any]]:
    """Yield the items of each page, page after page.

    Raises
    ------
    PullFailedError
        A token comes twice, or the pages never end.
    """
    seen: set[str] = set()
    token: str | None = None
    for _ in range(_MAX_PAGES):
        page = read_page(token)
        yield page.items
        if not page.next_token:
            return
        if page.next_token in seen:
            raise PullFailedError("pages_never_end", "The store repeats a page token: its pages would never end.")
        seen.add(page.next_token)
        token = page.next_token
    raise PullFailedError("pages_never_end", f"The window has more than {_MAX_PAGES} pages; take a shorter one.")


def list_stably(read_page: Callable[[str | None], Page]) -> list[str]:
    """Return the ids on all pages; read again while a list of several pages brings ids that were not there before.

    What arrives between two pages moves rows: one may come twice, and one whose start becomes earlier, because its root
    arrives, may move behind the place that is being read.

    Raises
    ------
    PullFailedError
        As `walk_pages`, or something new arrives at every reading.
    """
    known: dict[str, None] = {}
    for reading in range(_MAX_LISTINGS):
        count, pages = len(known), 0
        for ids in walk_pages(read_page):
            known |= dict.fromkeys(ids)
            pages += 1
        if pages == 1 or (reading and len(known) == count):
            return list(known)
    raise PullFailedError(
        "listing_unstable", "Traces of the window arrive faster than they are listed; a longer settle_seconds helps."
    )


@contextmanager
def reading(what: str, trace_id: str | None = None) -> Generator[None]:
    """Turn an answer that is not as its store writes it into a failed attempt that quotes nothing of it."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise PullFailedError(
            "answer_not_usable", f"{what} is not as the store writes it ({type(error).__name__}).", trace_id
        ) from error


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object, anything else as a TypeError."""
    if not isinstance(value, dict):
        raise TypeError(type(value).__name__)
    return cast("dict[str, Any]", value)


def make_authorization(secret: Any) -> str | None:
    """Return the Authorization header for a secret: `token`, or `username` and `password`, or two keys of Langfuse."""
    if not isinstance(secret, dict):
        return None
    values = cast("dict[str, Any]", secret)
    token = values.get("token")
    if isinstance(token, str) and token.isascii() and token.isprintable() and token:
        return f"Bearer {token}"
    for user, password in (("username", "password"), ("public_key", "secret_key")):
        if isinstance(values.get(user), str) and isinstance(values.get(password), str):
            return "Basic " + base64.b64encode(f"{values[user]}:{values[password]}".encode()).decode()
    return None


def _refuse(answer: HttpAnswer) -> None:
    """Fail for a status that no other try would change."""
    if answer.status in _MAY_PASS:
        return
    if answer.status in (401, 403):
        raise PullFailedError(
            "credentials_refused", f"The store refused the credentials of the source (status {answer.status})."
        )
    if answer.status == _NOT_FOUND:
        raise PullFailedError("location_unknown", "The store knows no such place (status 404).")
    if 300 <= answer.status < 400:
        raise PullFailedError(
            "endpoint_refused", "The store redirects, which is not followed: name the address it leads to."
        )
    raise PullFailedError("store_refused", f"The store refused the call (status {answer.status}).")


def _sentence(problem: str) -> str:
    return problem[:1].upper() + problem[1:]
