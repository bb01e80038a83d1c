"""A service that answers as it is told, and a client without waiting."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest
from evalward.client import Client
from evalward.command_line.main import main
from evalward.command_line.output import OUTPUT
from evalward.pending_writes import KeyKeeper, PendingWrites
from evalward.transport import Transport

type Answer = httpx.Response | Exception
URL = "https://api.example.com"
KEY = f"ew_{'a' * 16}_{'b' * 64}"


def problem(status: int, code: str, headers: dict[str, str] | None = None, **members: object) -> httpx.Response:
    document = {"status": status, "code": code, "title": "Title", "detail": "Detail.", "request_id": "r-1", **members}
    return httpx.Response(status, json=document, headers=headers)


class KilledError(BaseException):
    """The process dies while it waits for an answer."""


@dataclass
class Service:
    """Answers from a list, in order, and never after its end; remembers what it was asked and how long was waited."""

    answers: list[Answer] = field(default_factory=list[Answer])
    requests: list[httpx.Request] = field(default_factory=list[httpx.Request])
    waits: list[float] = field(default_factory=list[float])
    now: float = 0.0

    def handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        if not self.answers:
            raise KilledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.requests]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def pending(tmp_path: Path) -> PendingWrites:
    return PendingWrites(tmp_path / "pending")


@pytest.fixture
def connect(service: Service, pending: PendingWrites) -> Callable[..., Transport]:
    """Return a function that makes a transport to the service."""

    def make(
        keys: KeyKeeper | None = pending, patience_seconds: float = 60.0, url: str = URL, key: str = KEY
    ) -> Transport:
        return Transport(
            url,
            key,
            keys=keys,
            patience_seconds=patience_seconds,
            http=httpx.MockTransport(service.handle),
            sleep=service.sleep,
            clock=lambda: service.now,
        )

    return make


@dataclass
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


type Call = Callable[..., Ended]


@pytest.fixture
def call(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs the command in this process."""
    connected = partial(Client, http=httpx.MockTransport(service.handle))
    for module in ("login", "session"):
        monkeypatch.setattr(f"evalward.command_line.{module}.Client", connected)
    variables = {"EVALWARD_API_URL": URL, "EVALWARD_API_KEY": KEY, "EVALWARD_PROJECT": "demo"}
    for name, value in {**variables, "HOME": str(tmp_path), "XDG_STATE_HOME": "", "XDG_CONFIG_HOME": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(OUTPUT, "is_json", False)
        monkeypatch.setattr(sys, "argv", ["evalward", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return Ended(int(ended.value.code or 0), told.out, told.err)

    return run
