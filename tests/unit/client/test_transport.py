"""A write is sent again under the same key until it is known what became of it."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import httpx
import pytest
from evalward.errors import ConfigurationError, OutcomeUnknownError, ProblemError, UnreachableError
from evalward.pending_writes import PendingWrites
from evalward.routes import make_route
from evalward.transport import Transport, Write

from .conftest import KEY, URL, Service, problem

RUN = Write(operation="runs.create", path={"project": "demo"}, body={"name": "nightly"})
type Connect = Callable[..., Transport]
LOST = [
    httpx.ReadTimeout("read"),
    httpx.RemoteProtocolError("dropped"),
    httpx.ReadError("reset"),
    httpx.WriteError("broken pipe"),
    httpx.DecodingError("damaged"),
    httpx.Response(500),
    httpx.Response(502, text="<html>"),
    httpx.Response(503, json={"message": "Service Unavailable"}),
    httpx.Response(504),
    problem(503, "outcome_unknown", {"retry-after": "1"}),
    problem(409, "idempotency_in_progress", {"retry-after": "1"}),
]


@pytest.mark.parametrize("lost", LOST, ids=lambda lost: type(lost).__name__ + str(getattr(lost, "status_code", "")))
def test_lost_answer_is_asked_for_again_under_the_same_key(
    service: Service, connect: Connect, lost: httpx.Response | Exception, pending: PendingWrites
) -> None:
    service.answers = [lost, httpx.Response(202, json={"id": "1"})]

    answer = connect().write(RUN)

    assert answer.json() == {"id": "1"}
    assert len(service.requests) == 2
    assert service.keys[0] is not None
    assert service.keys[0] == service.keys[1]
    assert [request.content for request in service.requests] == [b'{"name":"nightly"}'] * 2
    assert pending.entries() == []


def test_two_writes_have_two_keys(service: Service, connect: Connect) -> None:
    service.answers = [httpx.Response(202, json={}), httpx.Response(202, json={})]
    transport = connect()
    transport.write(RUN)
    transport.write(RUN)
    assert len(set(service.keys)) == 2


def test_a_write_that_stays_in_doubt_keeps_its_key_for_the_next_process(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    service.answers = [httpx.ReadTimeout("read")] * 100
    with pytest.raises(OutcomeUnknownError) as caught:
        connect().write(RUN)
    (left,) = pending.entries()
    assert caught.value.idempotency_key == left.idempotency_key
    assert (left.operation, left.target) == ("runs.create", "POST /v1/projects/demo/runs")
    assert 50 < sum(service.waits) <= 60

    service.answers = [httpx.Response(202, json={}, headers={"idempotency-replayed": "true"})]
    connect().write(RUN)

    assert set(service.keys) == {left.idempotency_key}
    assert pending.entries() == []


def test_another_write_does_not_take_the_key_of_one_in_doubt(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    service.answers = [httpx.ReadTimeout("read")]
    with pytest.raises(OutcomeUnknownError):
        connect(patience_seconds=0).write(RUN)
    others = [
        (connect(), Write(operation="runs.create", path={"project": "demo"}, body={"name": "other"})),
        (connect(), Write(operation="runs.create", path={"project": "else"}, body={"name": "nightly"})),
        (connect(url="https://other.example.com"), RUN),
    ]
    service.answers = [httpx.Response(202, json={}) for _ in others]
    for transport, write in others:
        transport.write(write)
    assert len(set(service.keys)) == 4
    assert len(pending.entries()) == 1


def test_a_refusal_ends_a_write(service: Service, connect: Connect, pending: PendingWrites) -> None:
    faults = [{"pointer": "/name", "message": "must not be empty"}]
    service.answers = [problem(400, "invalid_request", errors=faults)]
    with pytest.raises(ProblemError, match="Title: Detail") as caught:
        connect().write(RUN)
    assert (caught.value.code, caught.value.errors, caught.value.request_id) == ("invalid_request", faults, "r-1")
    assert pending.entries() == []


@pytest.mark.parametrize(("status", "code"), [(401, "unauthenticated"), (403, "permission_denied"), (404, "not_found")])
def test_a_refusal_before_the_key_was_looked_at_says_nothing_of_an_earlier_attempt(
    service: Service, connect: Connect, pending: PendingWrites, status: int, code: str
) -> None:
    service.answers = [httpx.ReadTimeout("read"), problem(status, code)]
    with pytest.raises(ProblemError):
        connect().write(RUN)
    assert len(pending.entries()) == 1

    service.answers = [problem(status, code)]
    with pytest.raises(ProblemError):
        connect().write(Write(operation="runs.create", path={"project": "demo"}, body={"name": "another"}))
    assert len(pending.entries()) == 1


def test_an_uncertain_claim_keeps_its_key(service: Service, connect: Connect, pending: PendingWrites) -> None:
    service.answers = [problem(409, "idempotency_uncertain")]
    with pytest.raises(ProblemError) as caught:
        connect().write(RUN)
    assert caught.value.code == "idempotency_uncertain"
    assert len(service.requests) == 1
    assert len(pending.entries()) == 1


def test_retry_after_is_honoured_and_no_longer_wait_than_patience_is_begun(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    service.answers = [problem(429, "run_quota_exceeded", {"retry-after": "20"}), httpx.Response(202, json={})]
    connect().write(RUN)
    assert service.waits == [20.0]

    service.answers = [problem(429, "idempotency_capacity", {"retry-after": "3600"})]
    with pytest.raises(ProblemError) as caught:
        connect().write(RUN)
    assert (caught.value.code, caught.value.retry_after_seconds) == ("idempotency_capacity", 3600)
    assert service.waits == [20.0]
    assert pending.entries() == [], "nothing was claimed, so nothing is in doubt"


def test_an_api_that_was_never_reached_leaves_nothing_in_doubt(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    service.answers = [httpx.ConnectError("refused"), httpx.ConnectTimeout("slow")] * 50
    with pytest.raises(UnreachableError, match="does not answer"):
        connect().write(RUN)
    assert pending.entries() == []


def test_a_key_of_the_callers_own_is_sent_and_not_kept(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    service.answers = [httpx.Response(503), httpx.Response(202, json={})]
    connect().write(RUN, idempotency_key="build-17")
    assert service.keys == ["build-17", "build-17"]

    service.answers = [httpx.ReadTimeout("read")]
    with pytest.raises(OutcomeUnknownError) as caught:
        connect(patience_seconds=0).write(RUN, idempotency_key="build-18")
    assert caught.value.idempotency_key == "build-18"
    assert pending.entries() == []


@pytest.mark.parametrize("key", ["", "build 17", "build-17\n", "b\u00fcild"])
def test_a_key_of_the_callers_own_that_is_none_is_refused(service: Service, connect: Connect, key: str) -> None:
    with pytest.raises(ConfigurationError, match="no Idempotency-Key"):
        connect().write(RUN, idempotency_key=key)
    assert service.requests == []


def test_without_files_a_write_has_one_key_for_all_its_attempts(service: Service, connect: Connect) -> None:
    service.answers = [httpx.ReadTimeout("read"), httpx.Response(500), httpx.Response(202, json={})]
    connect(keys=None).write(RUN)
    assert len(service.keys) == 3
    assert len(set(service.keys)) == 1


def test_reads_are_repeated_too_and_have_no_key(service: Service, connect: Connect) -> None:
    service.answers = [httpx.ReadTimeout("read"), httpx.Response(503), httpx.Response(200, json={"items": []})]
    assert connect().read("runs.list", {"project": "demo"}, {"state": None, "limit": 2}).json() == {"items": []}
    assert str(service.requests[-1].url) == "https://api.example.com/v1/projects/demo/runs?limit=2"
    assert service.keys == [None] * 3


def test_a_gateways_own_answer_is_told_as_it_is(service: Service, connect: Connect) -> None:
    service.answers = [httpx.Response(413, json={"message": "Request Entity Too Large"})]
    with pytest.raises(ProblemError, match="HTTP 413") as caught:
        connect().write(RUN)
    assert (caught.value.code, caught.value.detail) == ("unknown", "Request Entity Too Large")


def test_an_answer_that_is_not_the_apis_settles_nothing(
    service: Service, connect: Connect, pending: PendingWrites
) -> None:
    portal = httpx.Response(200, text="<html>Welcome to our network", headers={"content-type": "text/html"})
    service.answers = [portal, httpx.Response(202, json={"id": "1"})]
    assert connect().write(RUN).json() == {"id": "1"}

    service.answers = [portal]
    with pytest.raises(OutcomeUnknownError, match="not the API's"):
        connect(patience_seconds=0).write(RUN)
    assert len(pending.entries()) == 1


def test_a_redirection_is_not_followed(service: Service, connect: Connect) -> None:
    service.answers = [httpx.Response(302, headers={"location": "https://elsewhere.example.com"})] * 2
    transport = connect()
    with pytest.raises(ProblemError, match="HTTP 302"):
        transport.write(RUN)
    with pytest.raises(ProblemError, match="HTTP 302"):
        transport.read("whoami")
    assert {request.url.host for request in service.requests} == {"api.example.com"}


def test_the_store_is_not_told_the_key(service: Service, connect: Connect) -> None:
    service.answers = [httpx.Response(200), httpx.Response(200, content=b"rows")]
    transport = connect()
    transport.put_file("https://store.example.com/x", {"content-length": "4"}, lambda: iter([b"rows"]), 1)
    assert transport.fetch("https://store.example.com/x").content == b"rows"
    assert ["authorization" in request.headers for request in service.requests] == [False, False]
    assert "transfer-encoding" not in service.requests[0].headers


@pytest.mark.parametrize(
    "url", ["http://api.example.com", "http://127.evil.example.com", "ftp://api.example.com", "api.example.com", ""]
)
def test_an_url_that_is_none_or_would_show_the_key_is_refused(connect: Connect, url: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(url=url)


@pytest.mark.parametrize("flaw", ["\n", " ", "\N{HORIZONTAL ELLIPSIS}"])
def test_a_key_that_is_none_is_refused_and_not_shown(connect: Connect, flaw: str) -> None:
    with pytest.raises(ConfigurationError, match="copy it anew") as caught:
        connect(key=KEY + flaw)
    assert "ew_" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:1", "https://a.b/v1/"])
def test_an_url_that_is_safe_is_taken(connect: Connect, url: str) -> None:
    assert connect(url=url).api_url == url.removesuffix("/v1/")


@pytest.mark.parametrize(
    ("value", "segment"), [("a/b", "a%2Fb"), ("..", "%2E%2E"), ("name@2", "name@2"), ("a?b#c", "a%3Fb%23c")]
)
def test_a_parameter_stays_one_segment(value: str, segment: str) -> None:
    method, path = make_route("datasets.get", {"project": "demo", "dataset": value})
    assert (method, path) == ("GET", f"/v1/projects/demo/datasets/{segment}")


def test_a_proxy_that_refuses_has_passed_nothing_on(service: Service, connect: Connect, pending: PendingWrites) -> None:
    service.answers = [httpx.ProxyError("407 Proxy Authentication Required")]
    with pytest.raises(UnreachableError, match="407"):
        connect(patience_seconds=0).write(RUN)
    assert pending.entries() == []


def test_a_certificate_that_is_not_trusted_is_not_asked_for_again(service: Service, connect: Connect) -> None:
    error = httpx.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed certificate")
    service.answers = [error]
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        connect().write(RUN)
    assert (len(service.requests), service.waits) == (1, [])


def test_a_request_that_is_sent_again_says_so_once(service: Service) -> None:
    said: list[str] = []
    transport = Transport(
        URL,
        KEY,
        http=httpx.MockTransport(service.handle),
        sleep=service.sleep,
        clock=lambda: service.now,
        say=said.append,
    )
    service.answers = [httpx.ConnectError("no route"), httpx.Response(503), httpx.Response(202, json={})]
    transport.write(RUN)
    assert said == ["No answer yet (no route); trying again for 60 s at most."]
