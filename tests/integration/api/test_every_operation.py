from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import api.operations
import pytest
from coordination.http.operation import Operation

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api

OPERATIONS = api.operations.OPERATIONS
each = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.id)
each_write = pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.body], ids=lambda one: one.id)
NO_OBJECTS = (
    *("", " ", "{", "[]", "null", '"text"', b"\xff\xfe{}"),
    *('{"id": NaN}', '{"a": 1, "a": 2}', '{"a": "\\u0000"}', '{"a": 1e400}', '{"a": "\\ud800"}'),
    *('{"a": ' + "1" * 5000 + "}", '{"a":' * 3000 + '"\\u0000"' + "}" * 3000),
)
IN_A_PROJECT = [one for one in OPERATIONS if "{project}" in one.path]


def path_of(operation: Operation, project: str = "demo") -> str:
    return re.sub(r"\{\w+\}", "00000000-0000-0000-0000-000000000000", operation.path.replace("{project}", project))


def other_permission(operation: Operation) -> str:
    return "evaluate" if operation.permission != "evaluate" else "runs.read"


@each
def test_call_without_a_known_key_is_a_401(service: Api, operation: Operation) -> None:
    unknown = f"Bearer ew_{'0' * 16}_{'0' * 64}"
    for header in (None, "Basic abc", "Bearer", "Bearer ew_0123456789abcdef_tooshort", unknown):
        headers = {} if header is None else {"authorization": header}
        reply = service.call(operation.method, path_of(operation), key="", headers=headers)
        assert (reply.status, reply.code) == (401, "unauthenticated")
        assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.permission], ids=lambda one: one.id)
def test_key_with_another_permission_is_a_403_and_audited(
    service: Api, operation: Operation, make_key: Callable[..., str], make_project: Callable[..., str],
    database: FreshDatabase,
) -> None:  # fmt: skip
    project = make_project()
    key = make_key({"project": project, "permissions": [other_permission(operation)]})
    reply = service.call(operation.method, path_of(operation), {} if operation.body else None, key=key)
    assert (reply.status, reply.code) == (403, "permission_denied")
    assert str(operation.permission) in reply.json["detail"]
    events = database.look("SELECT principal, operation, outcome, request_id FROM coordination.audit_events")
    assert events == [
        {
            "principal": f"key:{key[3:19]}",
            "operation": operation.id,
            "outcome": "denied",
            "request_id": reply.headers["x-request-id"],
        }
    ]


@pytest.mark.parametrize("operation", IN_A_PROJECT, ids=lambda one: one.id)
def test_project_that_the_key_may_not_see_is_a_404_like_one_that_is_not_there(
    service: Api, operation: Operation, make_key: Callable[..., str], make_project: Callable[..., str]
) -> None:
    make_project("hidden")
    key = make_key({"project": make_project("demo"), "role": "admin"})
    body = {} if operation.body else None
    hidden = service.call(operation.method, path_of(operation, "hidden"), body, key=key)
    absent = service.call(operation.method, path_of(operation, "absent"), body, key=key)
    assert (hidden.status, hidden.code) == (absent.status, absent.code) == (404, "not_found")
    assert hidden.json["detail"].replace("hidden", "absent") == absent.json["detail"]


@each_write
def test_body_of_another_content_type_is_a_415(
    service: Api, operation: Operation, make_project: Callable[..., str]
) -> None:
    make_project()
    for headers in ({"content-type": "text/plain"}, {"content-type": ""}):
        reply = service.call(operation.method, path_of(operation), "{}", headers=headers)
        assert (reply.status, reply.code) == (415, "unsupported_media_type")


@each_write
def test_unknown_field_is_refused_at_its_pointer(
    service: Api, operation: Operation, make_project: Callable[..., str]
) -> None:
    make_project()
    reply = service.call(operation.method, path_of(operation), {"no/such~field": 1})
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert "/no~1such~0field" in reply.pointers


@each_write
def test_body_that_is_no_json_object_is_a_400(
    service: Api, operation: Operation, make_project: Callable[..., str]
) -> None:
    make_project()
    for body in NO_OBJECTS:
        reply = service.call(operation.method, path_of(operation), body, is_base64=True, idempotency_key="k")
        assert (reply.status, reply.code) == (400, "invalid_request"), (body[:40], reply.json)


@each_write
def test_body_over_a_mebibyte_is_a_413(service: Api, operation: Operation, make_project: Callable[..., str]) -> None:
    make_project()
    reply = service.call(operation.method, path_of(operation), '{"a": "' + "x" * 1024 * 1024 + '"}')
    assert (reply.status, reply.code) == (413, "payload_too_large")


@each
def test_query_that_is_not_declared_is_a_400(
    service: Api, operation: Operation, make_project: Callable[..., str]
) -> None:
    make_project()
    for query in ("no_such=1", "limit=0", "limit=201", "limit=x", "limit=1&limit=2", "cursor=zzz"):
        reply = service.call(operation.method, path_of(operation), {} if operation.body else None, query=query)
        assert reply.status in (400, 404), reply.json
        if operation.method == "GET" and "{" not in operation.path.replace("{project}", ""):
            assert reply.code in ("invalid_request", "invalid_cursor")


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.idempotency], ids=lambda one: one.id)
def test_idempotency_key_that_is_none_is_a_400(
    service: Api, operation: Operation, make_project: Callable[..., str]
) -> None:
    make_project()
    for key in ("", '""', "a b", "ä", "x" * 129, 'a"', "a,b"):
        body, headers = {} if operation.body else None, {"idempotency-key": key}
        reply = service.call(operation.method, path_of(operation), body, headers=headers)
        assert (reply.status, reply.code) == (400, "invalid_idempotency_key")


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if "{" in one.path], ids=lambda one: one.id)
def test_path_with_characters_that_cannot_be_stored_is_never_a_500(
    service: Api, operation: Operation, make_project: Callable[..., str]
) -> None:
    make_project()
    for odd in ("\0", "\ud800", "x" * 5000, "'", '"', "\\", "%00", "ä", "-", ".", ".."):
        path = re.sub(r"\{\w+\}", lambda _: odd, operation.path)  # noqa: B023 - used at once
        reply = service.call(operation.method, path, {} if operation.body else None, idempotency_key=None)
        assert reply.status in (400, 403, 404), (odd, reply.json)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if one.method == "GET"], ids=lambda one: one.id)
def test_query_with_characters_that_cannot_be_stored_is_never_a_500(
    service: Api, operation: Operation, make_project: Callable[..., str]
) -> None:
    make_project()
    for name in operation.query.model_fields:
        for odd in ("%00", "%ff", "%F0%9F%98%80", "a%3D%00", "9" * 400, "%5B%5D"):
            reply = service.call(operation.method, path_of(operation), query=f"{name}={odd}")
            assert reply.status in (200, 400, 404), (name, odd, reply.json)
