"""The Python client."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Self

import httpx

from evalward.configuration import read_environment
from evalward.evaluation import Frames, evaluate
from evalward.pending_writes import KeyKeeper
from evalward.resources.claims import Claims
from evalward.resources.datasets import Datasets
from evalward.resources.failures import Failures
from evalward.resources.imports import Imports
from evalward.resources.keys import Keys
from evalward.resources.projects import Projects
from evalward.resources.resource import read_pages
from evalward.resources.runs import Runs
from evalward.resources.sources import Sources
from evalward.resources.webhooks import Webhooks
from evalward.transport import PATIENCE_SECONDS, JsonObject, Transport, read_object


class Client:
    """Calls one API under one key, and sends what fails again until it is known what became of it.

    A request is sent again on dropped connections, time-outs, 429 and 5xx, after what Retry-After says. A write has an
    Idempotency-Key in each attempt, always the same. When no definite answer comes in time a write ends in
    `OutcomeUnknownError`; made again with the `idempotency_key` in it, it takes effect once.

    Parameters
    ----------
    api_url
        Such as `https://abc.execute-api.eu-central-1.amazonaws.com`.
    api_key
        `ew_…`.
    keys
        Where Idempotency-Keys come from: `PendingWrites(folder)` lets a write be repeated by another process. By
        default they live as long as the call.
    patience_seconds
        How long a request is sent again.
    http
        What carries requests, for tests.
    say
        Receives one sentence when a request is about to be sent again.

    Raises
    ------
    ConfigurationError
        The URL is none, or would carry the key unencrypted over a network; or the key is none; or the environment
        names a proxy or certificates that cannot be used.

    Examples
    --------
    >>> with Client.from_environment() as client:
    ...     run = client.runs.create("demo", {"name": "nightly", "dataset": {"name": "answers"}, "evaluators": [...]})
    ...     print(client.runs.wait("demo", run["id"])["state"])
    """

    def __init__(
        self,
        api_url: str,
        api_key: str,
        *,
        keys: KeyKeeper | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        http: httpx.BaseTransport | None = None,
        say: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.transport = Transport(api_url, api_key, keys=keys, patience_seconds=patience_seconds, http=http, say=say)

    @classmethod
    def from_environment(cls, **options: Any) -> Self:
        """Make a client of EVALWARD_API_URL and EVALWARD_API_KEY.

        Raises
        ------
        ConfigurationError
            One of them is not set.
        """
        login = read_environment()
        return cls(login.api_url, login.api_key, **options)

    def __enter__(self) -> Self:
        """Return the client; the end of the block closes its connections."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    @cached_property
    def projects(self) -> Projects:
        """The tenants."""
        return Projects(self.transport)

    @cached_property
    def keys(self) -> Keys:
        """API keys."""
        return Keys(self.transport)

    @cached_property
    def datasets(self) -> Datasets:
        """Published datasets."""
        return Datasets(self.transport)

    @cached_property
    def imports(self) -> Imports:
        """Imports from the bucket."""
        return Imports(self.transport)

    @cached_property
    def runs(self) -> Runs:
        """Evaluations."""
        return Runs(self.transport)

    @cached_property
    def sources(self) -> Sources:
        """Scheduled pulls."""
        return Sources(self.transport)

    @cached_property
    def webhooks(self) -> Webhooks:
        """Endpoints that are told what happened."""
        return Webhooks(self.transport)

    @cached_property
    def failures(self) -> Failures:
        """What went wrong, grouped."""
        return Failures(self.transport)

    @cached_property
    def claims(self) -> Claims:
        """Writes without an outcome."""
        return Claims(self.transport)

    def whoami(self) -> JsonObject:
        """Tell whose key this is and what it may do."""
        return self._read("whoami")

    def health(self) -> JsonObject:
        """Tell the service's version, whether its database answers, and the limits."""
        return read_object(self.transport.get("/healthz"))

    def doctor(self) -> JsonObject:
        """Return the checks of the installation: `checks`, each healthy or unhealthy, with what to do."""
        return read_object(self.transport.get("/doctor/jobengine-web/checks"))

    def evaluators(self) -> JsonObject:
        """Return the catalogue of evaluators with the JSON Schemas of their parameters."""
        return self._read("evaluators.list")

    def evaluate(self, project: str, frames: Frames, *, idempotency_key: str | None = None) -> Iterator[JsonObject]:
        """Score a few records without a run, as `read_frames` read them: a frame for each, then the summary."""
        return evaluate(self.transport, project, frames, idempotency_key)

    def audit(self, **query: Any) -> JsonObject:
        """Return one page of the audit trail."""
        return read_object(self.transport.read("audit.list", {}, query))

    def each_audit_event(self, **query: Any) -> Iterator[JsonObject]:
        """Go through the audit trail."""
        return read_pages(self.transport, "audit.list", {}, query)

    def _read(self, operation: str) -> JsonObject:
        return read_object(self.transport.read(operation))
