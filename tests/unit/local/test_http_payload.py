import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from evalward_local.http_payload import HttpRequest, MalformedAnswerError, build_event, make_request_id, read_answer
from evalward_local.http_routes import HttpRoute, choose_route, read_routes

NOW = datetime(2026, 3, 12, 19, 3, 58, 390_000, tzinfo=UTC)
DEFAULT = HttpRoute("$default", "ANY", "$default", "api")


def make_event(route: HttpRoute = DEFAULT, parameters: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
    request = HttpRequest(
        method=fields.get("method", "GET"),
        raw_path=fields.get("raw_path", "/"),
        raw_query=fields.get("raw_query", ""),
        headers=fields.get("headers", [("host", "localhost:8080")]),
        body=fields.get("body", b""),
        source_ip="127.0.0.1",
    )
    return build_event(request, route, parameters or {}, request_id="JKJaXmPLvHcESHA=", now=NOW)


def test_header_names_are_lower_case_and_repeats_are_joined() -> None:
    event = make_event(headers=[("Host", "h"), ("Idempotency-Key", "a"), ("idempotency-key", "b"), ("X-Empty", "")])
    assert event["headers"]["idempotency-key"] == "a,b"
    assert event["headers"]["x-empty"] == ""


def test_cookies_leave_the_headers() -> None:
    event = make_event(headers=[("host", "h"), ("cookie", "a=1; b=2"), ("Cookie", "c=3")])
    assert event["cookies"] == ["a=1", "b=2", "c=3"]
    assert "cookie" not in event["headers"]


def test_the_path_is_decoded_and_the_query_is_kept_raw_and_decoded() -> None:
    event = make_event(raw_path="/v1/a%2Fb%20c/+", raw_query="x=1&y=a%20b&x=2&empty=&plus=a+b")
    assert event["rawPath"] == "/v1/a/b c/+"
    assert event["requestContext"]["http"]["path"] == "/v1/a/b c/+"
    assert event["rawQueryString"] == "x=1&y=a%20b&x=2&empty=&plus=a+b"
    assert event["queryStringParameters"] == {"x": "1,2", "y": "a b", "empty": "", "plus": "a b"}


def test_what_is_absent_in_the_request_is_absent_in_the_event() -> None:
    event = make_event()
    assert not {"cookies", "body", "queryStringParameters", "pathParameters"} & set(event)
    assert event["isBase64Encoded"] is False


@pytest.mark.parametrize(
    ("content_type", "body", "is_base64"),
    [
        ("application/json", b'{"a": "\xc3\xa9"}', False),
        ("application/json; charset=utf-8", b"{}", False),
        ("text/csv", b"a,b", False),
        ("TEXT/PLAIN", b"a", False),
        ("application/octet-stream", b"plain", True),
        ("application/x-www-form-urlencoded", b"a=1", True),
        ("", b"no type", True),
        ("application/json", b"\xff", True),
    ],
)
def test_bodies_of_other_types_than_text_are_base64(content_type: str, body: bytes, is_base64: bool) -> None:
    headers = [("host", "h")] + ([("content-type", content_type)] if content_type else [])
    event = make_event(method="POST", headers=headers, body=body)
    assert event["isBase64Encoded"] is is_base64
    assert (base64.b64decode(event["body"]) if is_base64 else event["body"].encode()) == body


def test_the_request_context_names_route_time_and_id() -> None:
    route = HttpRoute("POST /v1/projects/{project}/datasets", "POST", "/v1/projects/{project}/datasets", "f")
    event = make_event(route, {"project": "demo"}, method="POST", raw_path="/v1/projects/demo/datasets")
    context = event["requestContext"]
    assert event["routeKey"] == context["routeKey"] == "POST /v1/projects/{project}/datasets"
    assert event["pathParameters"] == {"project": "demo"}
    assert context["requestId"] == "JKJaXmPLvHcESHA="
    assert context["time"] == "12/Mar/2026:19:03:58 +0000"
    assert context["timeEpoch"] == 1_773_342_238_390
    assert context["http"] == {
        "method": "POST",
        "path": "/v1/projects/demo/datasets",
        "protocol": "HTTP/1.1",
        "sourceIp": "127.0.0.1",
        "userAgent": "",
    }


def test_request_ids_differ_and_look_like_the_gateways() -> None:
    ids = {make_request_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(item) == 16 and item.endswith("=") for item in ids)


def test_an_answer_with_a_status_is_a_response() -> None:
    response = read_answer(
        json.dumps(
            {"statusCode": 201, "headers": {"X-One": "1", "x-flag": True}, "cookies": ["a=1", "b=2"], "body": "é"}
        ).encode()
    )
    assert response.status == 201
    assert response.body == "é".encode()
    assert response.headers == [
        ("x-one", "1"),
        ("x-flag", "true"),
        ("content-type", "text/plain;charset=utf-8"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]


@pytest.mark.parametrize(
    ("answer", "body"), [({"a": 1}, b'{"a": 1}'), ("text", b"text"), (None, b"null"), ([1], b"[1]")]
)
def test_an_answer_without_a_status_is_the_body(answer: Any, body: bytes) -> None:
    response = read_answer(json.dumps(answer).encode())
    assert (response.status, response.body) == (200, body)
    assert ("content-type", "application/json") in response.headers


def test_a_base64_answer_is_decoded() -> None:
    answer = {"statusCode": 200, "body": base64.b64encode(b"\x00\xff").decode(), "isBase64Encoded": True}
    assert read_answer(json.dumps(answer).encode()).body == b"\x00\xff"


@pytest.mark.parametrize(
    "answer",
    [
        b"not json",
        b'{"statusCode": "many"}',
        b'{"statusCode": 99}',
        b'{"statusCode": 200, "body": {"a": 1}}',
        b'{"statusCode": 200, "body": "%%", "isBase64Encoded": true}',
        b'{"statusCode": 200, "headers": {"a": ["b"]}}',
    ],
)
def test_a_malformed_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        read_answer(answer)


def operation(function: str) -> dict[str, Any]:
    arn = f"arn:aws:lambda:us-east-1:123456789012:function:{function}"
    uri = f"arn:aws:apigateway:us-east-1:lambda:path/2015-03-31/functions/{arn}/invocations"
    return {"x-amazon-apigateway-integration": {"uri": uri}}


def test_the_most_specific_route_serves() -> None:
    routes = read_routes(
        {
            "paths": {
                "$default": {"x-amazon-apigateway-any-method": operation("rest")},
                "/files/{proxy+}": {"get": operation("files")},
                "/v1/projects/{project}/datasets": {"post": operation("conversion")},
                "/v1/projects/special/datasets": {"post": operation("special")},
            }
        }
    )

    def chosen(method: str, path: str) -> tuple[str, dict[str, str]]:
        found = choose_route(routes, method, path)
        assert found is not None
        return found[0].function_name, found[1]

    assert chosen("POST", "/v1/projects/demo/datasets") == ("conversion", {"project": "demo"})
    assert chosen("POST", "/v1/projects/a%2Fb/datasets") == ("conversion", {"project": "a/b"})
    assert chosen("POST", "/v1/projects/special/datasets") == ("special", {})
    assert chosen("GET", "/v1/projects/demo/datasets") == ("rest", {})
    assert chosen("POST", "/v1/projects/demo/datasets/x") == ("rest", {})
    assert chosen("POST", "/v1/projects//datasets") == ("rest", {})
    assert chosen("GET", "/files/a/b%20c") == ("files", {"proxy": "a/b c"})
    assert chosen("GET", "/files") == ("rest", {})


def test_without_a_default_route_nothing_serves() -> None:
    assert choose_route(read_routes({"paths": {"/a": {"get": operation("f")}}}), "GET", "/b") is None
