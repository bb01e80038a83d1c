"""Requests with retries. A write is sent again under its Idempotency-Key, never under another."""

import contextlib
import hashlib
import ipaddress
import json
import random
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httpx

from evalward.errors import (
    ConfigurationError,
    OutcomeUnknownError,
    ProblemError,
    UnreachableError,
)
from evalward.pending_writes import FreshKeys, GivenKey, HeldKey, Intent, KeyKeeper
from evalward.retry_policy import Outcome, next_delay
from evalward.routes import make_route

type JsonObject = dict[str, Any]

PATIENCE_SECONDS = 60.0
"""How long a request is sent again when nothing else is asked for."""

# The gateway answers within 30 s.
_TIMEOUTS = httpx.Timeout(40.0, connect=10.0)
_KEY_PREFIX = "ew_"
_VISIBLE = re.compile(r"[\x21-\x7e]*")
# A proxy that refuses has passed nothing on: what goes over a network is tunnelled.
_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
_REFUSED_BEFORE_THE_KEY = frozenset({401, 403, 404, 429})


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write to send.

    Attributes
    ----------
    operation
        Operation id.
    path
        Path parameters.
    query
        Query parameters; None is left out.
    body
        JSON body; None for none.
    content
        Raw body instead.
    answer
        Media type of the answer: anything else comes from something between us and the API.
    """

    operation: str
    path: Mapping[str, str] = field(default_factory=dict[str, str])
    query: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Any = None
    content: bytes | None = None
    answer: str = "application/json"


class Transport:
    """Talks to one API under one key.

    Parameters
    ----------
    api_url
        Without `/v1`.
    api_key
        `ew_…`.
    keys
        Where Idempotency-Keys come from; by default each write gets a new one that this process alone knows.
    patience_seconds
        How long a request is sent again before it is given up.
    http
        What carries requests, for tests.
    sleep, clock
        Wait, and tell monotonic time, in seconds.
    say
        Receives one sentence when a request is about to be sent again.

    Raises
    ------
    ConfigurationError
        The URL is none, or would carry the key unencrypted over a network; or the key is none; or the environment
        names a proxy or certificates that cannot be used.
    """

    def __init__(
        self,
        api_url: str,
        api_key: str,
        *,
        keys: KeyKeeper | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        http: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.api_url = check_url(api_url)
        if not _VISIBLE.fullmatch(api_key):
            # Said before it is sent: the error of a header that cannot be sent would show the key.
            raise ConfigurationError(
                "The API key holds a space, a line break or another character that no key has: copy it anew."
            )
        self.keys = keys or FreshKeys()
        self._api_key = api_key
        self._patience_seconds = patience_seconds
        self._sleep = sleep
        self._clock = clock
        self._say = say
        # Proxies come from the environment, except to this machine.
        is_local = is_loopback(httpx.URL(self.api_url).host)
        try:
            self._http = httpx.Client(
                base_url=self.api_url,
                headers={"authorization": f"Bearer {api_key}"} if api_key else {},
                timeout=_TIMEOUTS,
                transport=http,
                trust_env=not is_local,
            )
            # The object store is told nothing of the key.
            self._store = httpx.Client(
                timeout=httpx.Timeout(120.0, connect=10.0), transport=http, trust_env=not is_local
            )
        except (httpx.InvalidURL, ImportError, OSError, ValueError) as error:
            reason = str(error).rstrip(".")
            raise ConfigurationError(
                f"The environment names a proxy or certificates that cannot be used: {reason}. Look at $HTTPS_PROXY, "
                "$ALL_PROXY, $SSL_CERT_FILE and $SSL_CERT_DIR; $NO_PROXY names hosts that are reached without."
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._store.close()

    def read(
        self,
        operation: str,
        path: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        accept: str = "application/json",
    ) -> httpx.Response:
        """Read something, again and again while the API fails.

        Raises
        ------
        ProblemError
            The API refused, or kept failing.
        UnreachableError
            No answer.
        """
        return self.get(make_route(operation, path or {})[1], query, accept)

    def get(self, url: str, query: Mapping[str, Any] | None = None, accept: str = "application/json") -> httpx.Response:
        """Read a path of the API; as `read`."""
        params = _without_none(query or {})

        def send() -> httpx.Response:
            return self._http.get(url, params=params, headers={"accept": accept})

        response, failure = self._send(send, self._patience_seconds)
        if response is None:
            raise UnreachableError(f"{self.api_url} does not answer: {failure}")
        # 307 leads to the object store. Any other redirection is somebody's between us and the API.
        if response.status_code >= 300 and response.status_code != 307:
            raise read_problem(response)
        return response

    def write(
        self,
        write: Write,
        *,
        idempotency_key: str | None = None,
        patience_seconds: float | None = None,
    ) -> httpx.Response:
        """Send a write until there is a definite answer, always under the same key.

        Parameters
        ----------
        write
            What to send.
        idempotency_key
            A key of the caller's; by default one from `keys`.
        patience_seconds
            For how long; by default as everywhere.

        Raises
        ------
        ProblemError
            The API refused: nothing happened, unless the code says otherwise.
        OutcomeUnknownError
            No definite answer; the same write under the same key makes it happen once.
        UnreachableError
            The API was never reached.
        ConfigurationError, StaleWriteError
            As `hold`.
        """
        with self.hold(write, idempotency_key) as held:
            return self.write_under(held, write, patience_seconds=patience_seconds)

    def hold(
        self, write: Write, idempotency_key: str | None = None, *, is_harmless_twice: bool = False
    ) -> contextlib.AbstractContextManager[HeldKey]:
        """Give the key for a write while the block runs: the caller's own, or one from `keys`.

        Raises
        ------
        ConfigurationError
            The caller's key is none.
        StaleWriteError
            See there; not for a write that is harmless twice.
        """
        if idempotency_key is None:
            return self.keys.hold(self._intend(write, is_harmless_twice=is_harmless_twice))
        if not idempotency_key or not _VISIBLE.fullmatch(idempotency_key):
            raise ConfigurationError(f"{idempotency_key!r} is no Idempotency-Key: visible ASCII characters are.")
        return contextlib.nullcontext(GivenKey(idempotency_key))

    def write_under(
        self,
        held: HeldKey,
        write: Write,
        *,
        suffix: str = "",
        patience_seconds: float | None = None,
        is_last: bool = True,
    ) -> httpx.Response:
        """Send a write under a key that is held; as `write`.

        Parameters
        ----------
        held
            The key.
        write
            What to send.
        suffix
            Tells the steps of a write of several steps apart: a key belongs to one request.
        patience_seconds
            For how long.
        is_last
            Whether success of this step is the end of the whole write. A refusal always is.
        """
        method, path = make_route(write.operation, write.path)
        params, key = _without_none(write.query), held.value + suffix
        headers = {"idempotency-key": key, "accept": write.answer}
        body: dict[str, Any] = {}
        if write.content is not None:
            body["content"] = write.content
            headers["content-type"] = "application/octet-stream"
        elif write.body is not None:
            body["json"] = write.body
        may_have_happened = held.was_interrupted

        def send() -> httpx.Response:
            response = self._http.request(method, path, params=params, headers=headers, **body)
            if response.is_success and response.content and not _is_of(write.answer, response):
                raise httpx.RemoteProtocolError(f"the answer is not the API's: it is no {write.answer}")
            return response

        def note(outcome: Outcome) -> None:
            nonlocal may_have_happened
            may_have_happened = may_have_happened or outcome.may_have_happened

        response, failure = self._send(
            send, self._patience_seconds if patience_seconds is None else patience_seconds, note
        )
        outcome = None if response is None else _read_outcome(response)
        if response is not None and outcome is not None and outcome.is_definite:
            is_refused = response.status_code >= 300
            if not (may_have_happened and response.status_code in _REFUSED_BEFORE_THE_KEY) and (is_last or is_refused):
                held.finish()
            if is_refused:
                raise read_problem(response)
            return response
        if not may_have_happened:
            held.finish()
            if response is not None:
                raise read_problem(response)
            raise UnreachableError(f"{self.api_url} does not answer: {failure}")
        if response is not None and outcome is not None and outcome.code == "idempotency_uncertain":
            raise read_problem(response)
        raise OutcomeUnknownError(write.operation, key, failure)

    def put_file(
        self, url: str, headers: Mapping[str, str], open_content: Callable[[], Any], patience_seconds: float
    ) -> httpx.Response:
        """Put a file to a presigned URL, again while the store fails, and return the store's answer.

        Raises
        ------
        UnreachableError
            No answer came.
        """

        def send() -> httpx.Response:
            return self._store.put(url, headers=dict(headers), content=open_content())

        response, failure = self._send(send, patience_seconds)
        if response is None:
            raise UnreachableError(f"The object store does not answer: {failure}")
        return response

    def fetch(self, url: str) -> httpx.Response:
        """Get a presigned URL."""
        response, failure = self._send(lambda: self._store.get(url), self._patience_seconds)
        if response is None:
            raise UnreachableError(f"The object store does not answer: {failure}")
        if response.status_code >= 400:
            raise UnreachableError(f"The object store refused: HTTP {response.status_code}")
        return response

    def _intend(self, write: Write, *, is_harmless_twice: bool) -> Intent:
        """Say what a write is, for its pending key. The digest holds where it goes and as whom: not the secret."""
        method, path = make_route(write.operation, write.path)
        content = None if write.content is None else hashlib.sha256(write.content).hexdigest()
        who = self._api_key[: len(_KEY_PREFIX) + 16]
        parts = [self.api_url, who, write.operation, path, _without_none(write.query), write.body, content]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return Intent(write.operation, f"{method} {path}", digest, is_harmless_twice)

    def _send(
        self,
        send: Callable[[], httpx.Response],
        patience_seconds: float,
        note: Callable[[Outcome], None] = lambda _outcome: None,
    ) -> tuple[httpx.Response | None, str]:
        """Send until there is a definite answer or no time; return the last answer and what was wrong with it."""
        give_up_at = self._clock() + patience_seconds
        attempt = 0
        while True:
            attempt += 1
            response: httpx.Response | None = None
            try:
                response = send()
            except httpx.RequestError as error:
                outcome = Outcome(None, was_sent=not isinstance(error, _NOT_SENT))
                failure = str(error) or type(error).__name__
                if _is_distrusted(error):
                    return None, failure
            else:
                outcome = _read_outcome(response)
                failure = f"HTTP {response.status_code} {outcome.code}".strip()
            note(outcome)
            delay = next_delay(outcome, attempt, random.random())  # noqa: S311 - spreads retries, guards nothing
            if delay is None or self._clock() + delay > give_up_at:
                return response, failure
            if attempt == 1:
                self._say(f"No answer yet ({failure}); trying again for {give_up_at - self._clock():.0f} s at most.")
            self._sleep(delay)


def check_url(api_url: str) -> str:
    """Return the URL of an API without a final slash or `/v1`.

    Raises
    ------
    ConfigurationError
        It is none, or would carry the key unencrypted over a network.
    """
    try:
        url = httpx.URL(api_url.strip())
    except httpx.InvalidURL as error:
        raise ConfigurationError(f"{api_url!r} is no URL.") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"{api_url!r} is no URL of an API: https://… is.")
    if url.scheme == "http" and not is_loopback(url.host):
        raise ConfigurationError(f"{api_url} would carry the key unencrypted: use https.")
    return str(url).rstrip("/").removesuffix("/v1")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def read_problem(response: httpx.Response) -> ProblemError:
    """Make the error of an answer of 400 or more, whether it is a problem document or a gateway's own."""
    document = _read_document(response)
    place = str(document.get("type", ""))
    # It is the service's own: a reference of somebody else's is not passed on.
    about = str(response.url.join(place)) if place.startswith("/") else ""
    return ProblemError(document, _read_retry_after(response), about=about)


def read_object(response: httpx.Response) -> JsonObject:
    """Return the JSON object of an answer.

    Raises
    ------
    UnreachableError
        It is none: something between us and the API answered.
    """
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnreachableError(f"What answered at {response.url.host} is not the API: its answer is no JSON object.")
    return cast("JsonObject", document)


def _read_document(response: httpx.Response) -> JsonObject:
    try:
        document = response.json()
    except ValueError:
        document = None
    status = response.status_code
    if isinstance(document, dict) and "code" in document:
        return {"status": status, **cast("JsonObject", document)}
    text = cast("JsonObject", document).get("message") if isinstance(document, dict) else None
    return {
        "status": status,
        "code": "unknown",
        "title": f"HTTP {status} {response.reason_phrase}".strip(),
        "detail": str(text or ""),
        "request_id": response.headers.get("x-request-id", ""),
    }


def _read_outcome(response: httpx.Response) -> Outcome:
    code = str(_read_document(response)["code"]) if response.status_code >= 400 else ""
    return Outcome(response.status_code, code, _read_retry_after(response))


def _is_of(media_type: str, response: httpx.Response) -> bool:
    return response.headers.get("content-type", "").startswith(media_type)


def _is_distrusted(error: httpx.RequestError) -> bool:
    """Tell whether a connection failed on a certificate, which no repeat makes a better one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _read_retry_after(response: httpx.Response) -> int | None:
    text = response.headers.get("retry-after", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _without_none(query: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}
