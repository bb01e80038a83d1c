"""Guarded calls against servers that never come to an end."""

import contextlib
import socket
import threading
import time
from collections.abc import Generator

import pytest
from coordination.ports.http_calls import HttpCalls, OutgoingFailedError, OutgoingRefusedError

BODY = b"{}"
ANSWER = b"HTTP/1.1 200 OK\r\nx-one: 1\r\n\r\nbody"


@contextlib.contextmanager
def trickling_server(at_once: bytes, forever: bytes) -> Generator[int]:
    """Serve one connection: some bytes at once, then one of the others every 20 ms until the client is gone."""
    gone = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            request = b""
            # To its end, body and all: a socket that is closed with something unread resets the connection.
            while not request.endswith(BODY):
                request += connection.recv(65536)
            connection.sendall(at_once)
            while forever and not gone.wait(0.02):
                connection.sendall(forever)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        gone.set()
        thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("at_once", "forever"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\nx-one: ", b"1"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (ANSWER, b"y"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\ny\r\n"),
    ],
)
def test_call_ends_in_time_though_every_read_brings_a_byte(at_once: bytes, forever: bytes) -> None:
    with trickling_server(at_once, forever) as port:
        calls = HttpCalls({"*": [f"127.0.0.1:{port}"]})
        started = time.monotonic()
        with pytest.raises(OutgoingFailedError, match="to the end within"):
            calls.post("demo", f"http://127.0.0.1:{port}/", BODY, {}, timeout_seconds=0.5, max_bytes=1000)
        # Far below what the server would take, far above what the call may.
        assert time.monotonic() - started < 5


def test_answer_in_time_is_read_to_its_end() -> None:
    with trickling_server(ANSWER, b"") as port:
        calls = HttpCalls({"*": [f"127.0.0.1:{port}"]})
        answer = calls.post("demo", f"http://127.0.0.1:{port}/", BODY, {}, timeout_seconds=5, max_bytes=1000)
    assert (answer.status, answer.body, answer.headers["x-one"]) == (200, b"body", "1")


@pytest.mark.parametrize(
    "host",
    [
        *("2130706433", "0x7f000001", "017700000001", "127.1", "0", "0.0.0.0", "127.0.0.1", "10.1.2.3", "172.16.0.1"),
        *("192.168.0.1", "169.254.169.254", "169.254.170.2", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1"),
        *("240.0.0.1", "255.255.255.255", "[::]", "[::1]", "[fe80::1]", "[fd00::1]", "[ff02::1]"),
        *("[fec0::1]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::127.0.0.1]", "[::169.254.169.254]"),
        *("[::ffff:0:127.0.0.1]", "[::5efe:127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[5f00::1]"),
        *("[2002:7f00:1::]", "[2002:a9fe:a9fe::]", "[2001:0:7f00:1::]", "[2001:db8::1]", "[100::1]", "[4000::1]"),
    ],
)
def test_address_that_is_not_public_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(OutgoingRefusedError, match="not public"):
        HttpCalls({}).resolve("demo", f"https://{host}/")


@pytest.mark.parametrize(
    "host", ["93.184.216.34", "[2606:2800:220:1:248:1893:25c8:1946]", "[::ffff:93.184.216.34]", "[64:ff9b::5db8:d822]"]
)
def test_public_address_may_be_called(host: str) -> None:
    assert HttpCalls({}).resolve("demo", f"https://{host}/").port == 443


def test_plain_http_is_for_listed_hosts_and_the_refusal_names_the_setting() -> None:
    url = "http://127.0.0.1:9000/answers"
    destination = HttpCalls({"demo": ["127.0.0.1:9000"]}).resolve("demo", url)
    assert (destination.scheme, destination.address, destination.port) == ("http", "127.0.0.1", 9000)
    for project, allowed in (("other", ["127.0.0.1:9000"]), ("demo", ["127.0.0.1:9001"]), ("demo", [])):
        with pytest.raises(OutgoingRefusedError, match=r"must begin with https://.*OutgoingAllowedHosts"):
            HttpCalls({"demo": allowed}).resolve(project, url)
