import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from evalward_local.stack_file import StackFile


def test_a_request_reaches_the_function_as_an_event(stack: StackFile, http: httpx.Client) -> None:
    response = http.post(
        f"{stack.api_url}/things/a%2Fb?x=1&x=2",
        content=b"\x00\x01",
        headers=[("X-Twice", "1"), ("x-twice", "2"), ("cookie", "a=1; b=2")],
    )
    event = response.json()
    assert event["routeKey"] == "POST /things/{id}"
    assert event["rawPath"] == "/things/a/b"
    assert event["pathParameters"] == {"id": "a/b"}
    assert event["queryStringParameters"] == {"x": "1,2"}
    assert event["headers"]["x-twice"] == "1,2"
    assert event["cookies"] == ["a=1", "b=2"]
    assert (event["isBase64Encoded"], base64.b64decode(event["body"])) == (True, b"\x00\x01")
    assert response.headers["apigw-requestid"] == event["requestContext"]["requestId"]


def test_everything_else_takes_the_default_route(stack: StackFile, http: httpx.Client) -> None:
    assert http.get(f"{stack.api_url}/things/a").json()["routeKey"] == "$default"


def test_cookies_and_headers_of_an_answer_are_sent(stack: StackFile, http: httpx.Client) -> None:
    response = http.get(f"{stack.api_url}/cookies")
    assert response.status_code == 201
    assert response.headers.get_list("set-cookie") == ["a=1; Path=/", "b=2"]
    assert response.headers["x-one"] == "1"
    assert response.text == "made"


def test_a_base64_answer_is_sent_as_bytes(stack: StackFile, http: httpx.Client) -> None:
    assert http.get(f"{stack.api_url}/binary").content == b"\x00\x01\xff"


def test_an_answer_without_a_status_is_a_200(stack: StackFile, http: httpx.Client) -> None:
    response = http.get(f"{stack.api_url}/plain")
    assert (response.status_code, response.json()) == (200, {"answer": 42})


@pytest.mark.parametrize("path", ["fail", "large"])
def test_a_failed_function_is_the_gateways_500(stack: StackFile, http: httpx.Client, path: str) -> None:
    response = http.get(f"{stack.api_url}/{path}")
    assert (response.status_code, response.json()) == (500, {"message": "Internal Server Error"})


def test_a_body_over_ten_megabytes_is_the_gateways_413(stack: StackFile, http: httpx.Client) -> None:
    response = http.post(f"{stack.api_url}/things/x", content=b"x" * (10 * 1024 * 1024 + 1))
    assert (response.status_code, response.json()) == (413, {"message": "Request Entity Too Large"})


def test_a_binary_body_too_large_for_lambda_is_a_413(stack: StackFile, http: httpx.Client) -> None:
    response = http.post(f"{stack.api_url}/things/x", content=b"x" * (5 * 1024 * 1024))
    assert response.status_code == 413


def test_a_header_block_over_the_limit_is_refused(stack: StackFile, http: httpx.Client) -> None:
    assert http.get(f"{stack.api_url}/plain", headers={"x-large": "x" * 10_240}).status_code == 431


def test_requests_wait_for_a_free_environment(
    stack: StackFile,
    http: httpx.Client,
    make_client: Callable[[str], Any],
    eventually: Callable[..., Any],
    tmp_path: Path,
) -> None:
    client = make_client("lambda")
    release = tmp_path / "release"
    started = [tmp_path / "first", tmp_path / "second"]
    with ThreadPoolExecutor(3) as threads:
        for path in started:
            event = f'{{"do": "wait", "started": "{path}", "until": "{release}"}}'
            threads.submit(client.invoke, FunctionName="evalward-ProbeFunction", Payload=event.encode())
        eventually(lambda: all(path.exists() for path in started))
        waiting = threads.submit(http.get, f"{stack.api_url}/plain")
        release.touch()
        assert waiting.result().status_code == 200
