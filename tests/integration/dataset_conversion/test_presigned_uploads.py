"""What a presigned URL takes, told by a server that checks what was signed."""

import base64
import hashlib
import http.client
import uuid
from urllib.parse import urlsplit

import httpx
import pytest
from coordination.ports.objects import ObjectNotFoundError, Objects

CONTENT = b'{"id":"1","input":"a question"}\n'
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def objects(strict_s3: str, monkeypatch: pytest.MonkeyPatch) -> Objects:
    """Return the port as the functions have it, but for the address."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_ENDPOINT_URL": strict_s3,
    }.items():
        monkeypatch.setenv(name, value)
    return Objects("evalward-test")


@pytest.fixture
def key(objects: Objects) -> str:
    return f"datasets/uploads/demo/{uuid.uuid4()}"


def presign(objects: Objects, key: str) -> tuple[str, dict[str, str]]:
    return objects.presign_put(key, len(CONTENT), SHA256, 600)


def is_there(objects: Objects, key: str) -> bool:
    try:
        return objects.read(key) == CONTENT
    except ObjectNotFoundError:
        return False


def put(url: str, content: bytes, headers: dict[str, str]) -> int:
    """Send exactly these headers; `content-length` may lie."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.netloc, timeout=30)
    try:
        connection.putrequest("PUT", f"{place.path}?{place.query}", skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(content)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def test_the_announced_file_is_taken_once(objects: Objects, key: str) -> None:
    url, headers = presign(objects, key)
    assert put(url, CONTENT, headers) == 200
    assert is_there(objects, key)
    # If-None-Match: the URL cannot replace what is being finalized.
    assert put(url, CONTENT, headers) == 412
    assert is_there(objects, key)


def test_another_size_is_refused(objects: Objects, key: str) -> None:
    url, headers = presign(objects, key)
    longer = CONTENT + b"\n"
    assert put(url, longer, headers | {"content-length": str(len(longer))}) == 403
    assert not is_there(objects, key)


def test_another_content_of_the_same_size_is_refused(objects: Objects, key: str) -> None:
    url, headers = presign(objects, key)
    assert put(url, CONTENT.swapcase(), headers) == 400
    assert not is_there(objects, key)


def test_another_content_with_its_own_checksum_is_refused(objects: Objects, key: str) -> None:
    url, headers = presign(objects, key)
    other = CONTENT.swapcase()
    checksum = base64.b64encode(hashlib.sha256(other).digest()).decode()
    assert put(url, other, headers | {"x-amz-checksum-sha256": checksum}) == 403
    assert not is_there(objects, key)


@pytest.mark.parametrize("name", ["x-amz-checksum-sha256", "if-none-match"])
def test_no_signed_header_may_be_left_out(objects: Objects, key: str, name: str) -> None:
    url, headers = presign(objects, key)
    del headers[name]
    assert put(url, CONTENT, headers) == 403
    assert not is_there(objects, key)


def test_the_url_is_good_for_its_key_and_a_put_only(objects: Objects, key: str) -> None:
    url, headers = presign(objects, key)
    assert put(url.replace("/demo/", "/other/"), CONTENT, headers) == 403
    assert httpx.get(url, trust_env=False).status_code == 403
    assert httpx.delete(url, trust_env=False).status_code == 403
    assert not is_there(objects, key)
