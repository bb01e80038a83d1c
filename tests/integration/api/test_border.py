from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from coordination.environment import Environment
from coordination.http import border

if TYPE_CHECKING:
    from integration.conftest import Api, Wire


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing", "/v1/projects/", "/v1/projects/demo/runs/1/2/3", "//"])
def test_unknown_path_is_a_404(service: Api, path: str) -> None:
    reply = service.get(path)
    assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/projects", "GET, POST"),
        ("DELETE", "/v1/projects/demo", "GET, PATCH"),
        ("POST", "/healthz", "GET"),
        ("OPTIONS", "/v1/keys", "GET, POST"),
        ("HEAD", "/v1/audit", "GET"),
    ],
)
def test_other_method_is_a_405_that_lists_those_there_are(service: Api, method: str, path: str, allow: str) -> None:
    reply = service.call(method, path)
    assert (reply.status, reply.code) == (405, "method_not_allowed")
    assert reply.headers["allow"] == allow


def test_method_that_the_answer_would_allow_is_never_refused_as_such(service: Api) -> None:
    reply = service.get('/v1/projects/"demo"')
    assert reply.status == 404


def test_problem_has_all_members_of_rfc_9457_and_ours(service: Api) -> None:
    reply = service.get("/v1/nothing")
    assert reply.headers["content-type"] == "application/problem+json"
    assert set(reply.json) == {"type", "title", "status", "code", "detail", "request_id"}
    assert reply.json["type"] == "/docs#not_found"
    assert reply.json["request_id"] == reply.headers["x-request-id"]


def test_unexpected_error_is_a_500_without_internals(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise RuntimeError("secret internals")

    monkeypatch.setattr(border, "load_environment", fail)
    reply = service.get("/v1/whoami")
    assert (reply.status, reply.code) == (500, "internal_error")
    assert b"secret internals" not in reply.content


def test_event_without_request_id_is_answered_with_lambdas(service: Api) -> None:
    reply = service.get(
        "/v1/whoami", changes={"requestContext": {"stage": "$default", "http": {"method": "GET", "path": "/v1/whoami"}}}
    )
    assert reply.status == 200


def test_header_names_are_read_in_any_case(service: Api) -> None:
    reply = service.get("/v1/whoami", key="", headers={"AUTHORIZATION": f"bearer {service.admin_key}"})
    assert reply.status == 200


def test_body_that_is_marked_as_base64_and_is_not_is_a_400(service: Api) -> None:
    reply = service.post("/v1/projects", "{}", changes={"body": "%%%", "isBase64Encoded": True})
    assert (reply.status, reply.code) == (400, "invalid_request")


def test_base64_and_plain_delivery_of_one_body_are_one_request(service: Api) -> None:
    first = service.post("/v1/projects", {"id": "demo"}, idempotency_key="k")
    again = service.post("/v1/projects", {"id": "demo"}, idempotency_key="k", is_base64=True)
    assert (first.status, again.status) == (201, 201)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"


def test_absent_null_and_empty_bodies_are_one_request(service: Api, make_key: Callable[..., str]) -> None:
    key_id = make_key({"project": "*", "role": "viewer"})[3:19]
    replies = [
        service.call("DELETE", f"/v1/keys/{key_id}", idempotency_key="k", changes=changes)
        for changes in ({}, {"body": None}, {"body": ""}, {"body": "", "isBase64Encoded": True})
    ]
    assert [reply.status for reply in replies] == [204] * 4
    assert [reply.headers.get("idempotency-replayed") for reply in replies] == [None, "true", "true", "true"]
    assert {reply.content for reply in replies} == {b""}


def test_health_needs_no_key_and_tells_version_database_and_limits(service: Api) -> None:
    reply = service.get("/healthz", key="")
    assert reply.status == 200
    assert reply.json["status"] == "ok"
    assert reply.json["database"] == "reachable"
    assert reply.json["limits"]["direct_upload_bytes"] == 4 * 1024 * 1024


def test_health_is_a_503_and_calls_are_problems_when_the_database_is_away(
    make_environments: Callable[..., Environment], open_api: Callable[[Environment], Api], tmp_path: Any
) -> None:
    service = open_api(make_environments(f"postgresql:///nothing?host={tmp_path}"))
    health = service.get("/healthz", key="")
    assert (health.status, health.json["database"]) == (503, "unreachable")
    reply = service.get("/v1/whoami")
    assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "database_unavailable", "1")


def test_openapi_and_docs_need_no_key(service: Api) -> None:
    document = service.get("/v1/openapi.json", key="")
    assert document.status == 200
    assert document.json["openapi"].startswith("3.")
    docs = service.get("/docs", key="")
    assert docs.status == 200
    assert docs.headers["content-type"].startswith("text/html")


def test_expired_key_is_a_401(service: Api, make_key: Callable[..., str]) -> None:
    alive = make_key({"project": "*", "role": "viewer"}, expires_in="1 minute")
    expired = make_key({"project": "*", "role": "viewer"}, expires_in="-1 millisecond")
    assert service.get("/v1/whoami", key=alive).status == 200
    assert service.get("/v1/whoami", key=expired).status == 401


def test_right_id_with_a_wrong_secret_is_a_401(service: Api) -> None:
    assert service.get("/v1/whoami", key=service.admin_key[:-4] + "0000").status == 401


@pytest.mark.parametrize(("idempotency_key", "at_most"), [(None, 3), ("k", 3)])
def test_write_costs_three_round_trips_and_a_replay_one(
    wired: Environment, wire: Wire, open_api: Callable[[Environment], Api], idempotency_key: str | None, at_most: int
) -> None:
    service = open_api(wired)
    service.get("/v1/whoami")
    wire.round_trips = 0
    assert service.post("/v1/projects", {"id": "demo"}, idempotency_key=idempotency_key).status == 201
    assert wire.round_trips <= at_most
    if idempotency_key is not None:
        wire.round_trips = 0
        assert service.post("/v1/projects", {"id": "demo"}, idempotency_key=idempotency_key).status == 201
        assert wire.round_trips == 1


def test_body_of_an_answer_is_text_and_not_base64(service: Api) -> None:
    reply = service.get("/v1/whoami")
    assert base64.b64encode(reply.content) != reply.content
    assert reply.headers["content-type"] == "application/json"
