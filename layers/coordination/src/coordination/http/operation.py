"""The declaration of one operation."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from coordination.access import Permission, Principal
from coordination.clock import Deadline
from coordination.database import Transaction
from coordination.environment import Environment
from coordination.idempotency.remote_write import EffectBoundary
from coordination.models import QueryModel

type Method = Literal["GET", "POST", "PATCH", "DELETE"]


@runtime_checkable
class Abandonable(Protocol):
    """Something prepared that holds what must be given back when the write does not take it."""

    def abandon(self) -> None:
        """Give it back."""
        ...


class NoQuery(QueryModel):
    """An operation without query parameters."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation answers.

    Attributes
    ----------
    status
        HTTP status.
    body
        A model (written as JSON), text or bytes of `content_type`, or None for no body.
    headers
        Further headers, lower-case names.
    content_type
        Of the body.
    """

    status: int
    body: BaseModel | str | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    content_type: str = "application/json"

    def encode_body(self, without: frozenset[str] = frozenset()) -> bytes:
        """Return the body's bytes, leaving out the named top-level fields."""
        match self.body:
            case None:
                return b""
            case str():
                return self.body.encode()
            case bytes():
                return self.body
            case _:
                return self.body.model_dump_json(exclude=set(without)).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWrite:
    """Idempotency contract of a write whose effects are all in PostgreSQL.

    Claim check, effect and stored outcome commit in one transaction, so there is no effect boundary: before the commit
    nothing has happened. What an operation prepares before it (a content-addressed object) may be done twice.

    Attributes
    ----------
    stored_headers
        Headers that are stored and replayed, beside `content-type`.
    secret_fields
        Top-level fields of the response that are never stored: shown in the first answer only.
    """

    stored_headers: frozenset[str] = frozenset({"location", "etag"})
    secret_fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteWrite:
    """Idempotency contract of a write with an effect outside PostgreSQL.

    The claim commits before the effect; rows and outcome commit after it. An error before the effect boundary releases
    the claim, one after it leaves the write uncertain.

    Attributes
    ----------
    act
        Has the effect: called without a transaction, it crosses the boundary right before the effect; what it returns
        becomes `Call.prepared` for `handle`, which writes the effect's rows.
    effect_boundary
        In words: which step is the first that cannot be taken back.
    needed_seconds
        With less of the invocation left, nothing is claimed.
    reserved_bytes
        What the answer may take of the scope's bytes.
    stored_headers, secret_fields
        As of a local write.
    """

    act: "Callable[[Call, EffectBoundary], Any]"
    effect_boundary: str
    needed_seconds: float
    reserved_bytes: int
    stored_headers: frozenset[str] = frozenset({"location", "etag"})
    secret_fields: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One authenticated, authorized and validated call.

    Attributes
    ----------
    environment
        The means.
    deadline
        When the invocation ends.
    request_id
        The gateway's id of this request.
    principal
        Who calls.
    path
        Path parameters by name.
    query, body
        Validated models; `content` holds a raw upload's bytes instead of a body.
    is_keyed
        Whether the call has an Idempotency-Key.
    accept
        The Accept header: which media types the caller takes (RFC 9110, 12.5.1).
    prepared
        What the operation's `prepare` made, or what the `act` of a remote write returned.
    """

    environment: Environment
    deadline: Deadline
    request_id: str
    principal: Principal
    path: Mapping[str, str]
    query: BaseModel
    body: BaseModel | None
    content: bytes
    accept: str = "*/*"
    is_keyed: bool = False
    prepared: Any = None

    @property
    def project(self) -> str:
        """The project in the path."""
        return self.path["project"]

    def query_as[Model: BaseModel](self, model: type[Model]) -> Model:
        """Return the query as the model the operation declares."""
        assert isinstance(self.query, model)  # noqa: S101 - the border validated it with this very model
        return self.query

    def body_as[Model: BaseModel](self, model: type[Model]) -> Model:
        """Return the body as the model the operation declares."""
        assert isinstance(self.body, model)  # noqa: S101 - the border validated it with this very model
        return self.body


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of the API, declared once.

    Attributes
    ----------
    id
        Constant name, part of every fingerprint and audit event; never changes when code is renamed.
    method, path
        HTTP method and path; parameters in braces. A parameter `project` makes it an operation of that project.
    summary
        One sentence for the documentation.
    permission
        What the caller needs; None when any valid key will do (in a project: any grant on it).
    query, body
        Models; no `body` means that none is read.
    max_content_bytes
        For a raw upload: the largest body, in bytes. Its content type is not looked at.
    content_type
        Of a raw upload, as documented; it is not looked at.
    content_meaning
        Of a raw upload: what is in it, for the documentation.
    too_large_advice
        What to do with a larger one.
    responses
        Status -> model of the documented successes (None: no JSON body).
    audited_as
        Outcome that its audit event names.
    other_content_types
        What it can answer beside JSON, chosen by the Accept header.
    error_statuses
        Errors that it may answer beside those that follow from the rest of its declaration.
    idempotency
        The contract of a write; None for a read.
    prepare
        Runs before the transaction; for a keyed write after its stored outcome was looked for. What it does must be
        harmless twice.
    handle
        The use case, inside the transaction.
    """

    id: str
    method: Method
    path: str
    summary: str
    handle: Callable[[Call, Transaction], Answer]
    permission: Permission | None = None
    query: type[QueryModel] = NoQuery
    body: type[BaseModel] | None = None
    max_content_bytes: int = 0
    content_type: str = "application/octet-stream"
    content_meaning: str = "The file"
    too_large_advice: str = ""
    responses: Mapping[int, type[BaseModel] | None] = field(default_factory=dict[int, type[BaseModel] | None])
    audited_as: Literal["allowed", "reconciled"] = "allowed"
    other_content_types: tuple[str, ...] = ()
    error_statuses: frozenset[int] = frozenset()
    idempotency: LocalWrite | RemoteWrite | None = None
    prepare: Callable[[Call], Any] | None = None

    def __post_init__(self) -> None:
        if (self.method == "GET") != (self.idempotency is None):
            raise ValueError(f"{self.id}: a write declares its idempotency, a read has none")

    @property
    def path_pattern(self) -> re.Pattern[str]:
        """A pattern that matches the path with any parameters."""
        return path_pattern(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPage:
    """A page that needs no key.

    Attributes
    ----------
    id, path, summary
        As of an operation; the method is GET.
    respond
        Makes the answer.
    content_type
        What it answers.
    """

    id: str
    path: str
    summary: str
    respond: Callable[[Environment], Answer]
    content_type: str = "application/json"
    response: type[BaseModel] | None = None


def path_pattern(path: str) -> re.Pattern[str]:
    """Return a pattern that matches a declared path with any parameters."""
    return re.compile("^" + re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path)) + "$")
