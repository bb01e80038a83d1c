"""One request is one request, however API Gateway delivers it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from coordination.idempotency.fingerprint import fingerprint_request

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api

BODY = {"id": "demo", "description": "words"}
COUNT_RECORDS = "SELECT count(*) FROM coordination.idempotency_records"


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
@pytest.mark.parametrize("value", ["k", '"k"', ' "k" ', '"k";p=1', '"k"; p=1; q'])
def test_key_is_the_same_in_any_case_quoted_or_bare(service: Api, name: str, value: str) -> None:
    first = service.post("/v1/projects", BODY, idempotency_key="k")
    again = service.post("/v1/projects", BODY, headers={name: value})
    assert (again.status, again.content) == (201, first.content)
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    "value",
    [
        "",
        '""',
        " ",
        "a,b",
        '"a","b"',
        '"a", "b"',
        "a b",
        '"a b"',
        '"a',
        'a"',
        '"a"b',
        "\x07",
        "ä",
        "a\u2028",
        "x" * 129,
    ],
)
def test_header_that_is_not_one_key_is_refused(service: Api, database: FreshDatabase, value: str) -> None:
    refused = service.post("/v1/projects", BODY, idempotency_key=value)
    assert (refused.status, refused.code) == (400, "invalid_idempotency_key")
    assert database.look_up(COUNT_RECORDS) == 0
    assert service.get("/v1/projects/demo").status == 404


@pytest.mark.parametrize("value", ["x" * 128, '"' + "x" * 128 + '"', '"a,b"', "!~", r'"a\"b"', "a;p=1"])
def test_unusual_keys_are_keys(service: Api, value: str) -> None:
    first = service.post("/v1/projects", BODY, idempotency_key=value)
    assert service.post("/v1/projects", BODY, idempotency_key=value).content == first.content


def test_delivery_as_base64_or_plain_makes_no_difference(service: Api) -> None:
    text = '{"id":"demo","description":"w\u00f6rds"}'
    first = service.post("/v1/projects", text, idempotency_key="k")
    encoded = {"body": base64.b64encode(text.encode()).decode(), "isBase64Encoded": True}
    again = service.post("/v1/projects", text, idempotency_key="k", changes=encoded)
    assert (first.status, again.content) == (201, first.content)


@pytest.mark.parametrize("body", [None, "", "absent"])
@pytest.mark.parametrize("is_base64", [False, True])
def test_absent_null_and_empty_bodies_are_one_request(
    service: Api, make_key: Callable[..., str], body: Any, is_base64: bool
) -> None:
    deleted = make_key({"project": "*", "role": "viewer"})[3:19]
    first = service.call("DELETE", f"/v1/keys/{deleted}", idempotency_key="k")
    changes = {"isBase64Encoded": is_base64} | ({} if body == "absent" else {"body": body})
    again = service.call("DELETE", f"/v1/keys/{deleted}", idempotency_key="k", changes=changes)
    assert (first.status, again.status) == (204, 204)
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == first.content == b""
    assert again.headers.get("content-type") == first.headers.get("content-type")


def test_encoded_slash_and_slash_do_not_collide(service: Api, make_key: Callable[..., str]) -> None:
    key = make_key({"project": "*", "role": "viewer"})[3:19]
    assert service.call("DELETE", f"/v1/keys/{key}", idempotency_key="k").status == 204
    codes = [
        service.call("DELETE", path, idempotency_key="k").code for path in (f"/v1/keys/x%2F{key}", f"/v1/keys/x/{key}")
    ]
    assert codes == ["idempotency_key_reused", "not_found"]
    one, other = (
        fingerprint_request("operation", path, {}, None, None)
        for path in ({"a": "x/y", "b": "z"}, {"a": "x", "b": "y/z"})
    )
    assert one != other


def test_same_event_delivered_twice_with_other_request_ids_is_one_write(service: Api) -> None:
    first, again = (service.post("/v1/projects", BODY, idempotency_key="k") for _ in range(2))
    assert again.content == first.content
    assert again.headers["x-request-id"] != first.headers["x-request-id"]


def test_order_of_members_escapes_and_written_out_defaults_make_no_other_request(service: Api) -> None:
    bodies = [
        '{"id":"demo","quotas":{"max_stored_runs":100}}',
        '{"quotas" : {"max_stored_runs":100}, "id":"d\\u0065mo", "description":""}',
    ]
    answers = [service.post("/v1/projects", body, idempotency_key="k") for body in bodies]
    assert [answer.status for answer in answers] == [201, 201]
    assert len({answer.content for answer in answers}) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"id":"demo","id":"demo"}', 400),
        ('{"id":"demo","quotas":{"max_stored_runs":NaN}}', 400),
        ('{"id":"demo","description":"\\ud800"}', 400),
        ('{"id":"demo","quotas":{"max_stored_runs":100.0}}', 400),
        ('{"id":"demo","more":1}', 400),
        ("[]", 400),
        ("", 400),
    ],
)
def test_body_that_is_refused_does_not_use_up_its_key(
    service: Api, database: FreshDatabase, body: str, status: int
) -> None:
    assert service.post("/v1/projects", body, idempotency_key="k").status == status
    assert database.look_up(COUNT_RECORDS) == 0
    assert service.post("/v1/projects", BODY, idempotency_key="k").status == 201


def test_no_refusal_uses_up_the_key(service: Api, database: FreshDatabase, make_key: Callable[..., str]) -> None:
    weak = make_key({"project": "*", "role": "viewer"})
    refusals = [
        service.post("/v1/projects", BODY, idempotency_key="k", key="ew_0123456789abcdef_" + "0" * 64),
        service.post("/v1/projects", BODY, idempotency_key="k", key=weak),
        service.post("/v1/nothing", BODY, idempotency_key="k"),
        service.post("/v1/projects", BODY, idempotency_key="k", headers={"content-type": "text/plain"}),
        service.post("/v1/projects", {"id": "demo", "description": "x" * 1024 * 1024}, idempotency_key="k"),
        service.post("/v1/projects", {"id": "NOT A NAME"}, idempotency_key="k"),
    ]
    assert [refused.status for refused in refusals] == [401, 403, 404, 415, 413, 400]
    assert database.look_up(COUNT_RECORDS) == 0
    assert service.post("/v1/projects", BODY, idempotency_key="k").status == 201


def test_write_without_the_header_runs_and_stores_nothing(service: Api, database: FreshDatabase) -> None:
    assert service.post("/v1/projects", BODY).status == 201
    assert service.post("/v1/projects", BODY).code == "project_exists"
    assert database.look_up(COUNT_RECORDS) == 0


def test_key_on_a_read_is_not_looked_at(service: Api, database: FreshDatabase) -> None:
    assert service.get("/v1/projects", headers={"idempotency-key": "not, a key"}).status == 200
    assert database.look_up(COUNT_RECORDS) == 0


def test_every_kind_of_refusal_has_a_type_of_its_own(service: Api) -> None:
    service.post("/v1/projects", BODY, idempotency_key="k")
    reused = service.post("/v1/projects", {"id": "other"}, idempotency_key="k")
    invalid = service.post("/v1/projects", BODY, idempotency_key="")
    assert (reused.json["type"], invalid.json["type"]) == (
        "/docs#idempotency_key_reused",
        "/docs#invalid_idempotency_key",
    )
