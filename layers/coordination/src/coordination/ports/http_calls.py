"""Outgoing HTTP to places that a project names: targets, webhooks, sources, sinks.

An address is looked at after DNS resolution and the connection goes to that very address, so a name that resolves
differently a moment later (DNS rebinding) gains nothing. Redirects are not followed. Link-local, loopback, private,
multicast and metadata addresses are refused unless the deployment lists the host for the project.
"""

import ipaddress
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from coordination.settings import list_allowed

_MAX_URL_LENGTH = 2000
_CHUNK_BYTES = 64 * 1024
# All public IPv6 addresses lie here; those that translate to IPv4 are looked at as such.
_IPV6_PUBLIC, _IPV6_NAT64 = ipaddress.IPv6Network("2000::/3"), ipaddress.IPv6Network("64:ff9b::/96")


class OutgoingRefusedError(Exception):
    """The address may not be called; the message says why and is for people."""


class OutgoingFailedError(Exception):
    """The call was tried and brought no usable answer; the message is for people and holds no payload."""


class AnswerTooLargeError(OutgoingFailedError):
    """The answer has more bytes than the caller wants; another call would bring the same."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a server answered.

    Attributes
    ----------
    status
        HTTP status.
    headers
        Lower-case names.
    body
        At most the bytes that were asked for.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def retry_after_seconds(self) -> float | None:
        """Return the seconds in a Retry-After header, or None; a date is not read."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isascii() and value.isdigit() else None


@dataclass(frozen=True, slots=True)
class Destination:
    """A checked address: where to connect, and who must be there.

    Attributes
    ----------
    scheme, host, port
        As in the URL.
    path
        Path and query.
    address
        The IP address that the check has passed.
    """

    scheme: str
    host: str
    port: int
    path: str
    address: str


class HttpCalls:
    """Makes guarded calls.

    Parameters
    ----------
    allowed_hosts
        Project id, or `*` for every project -> hosts (`host` or `host:port`) that may be called although their
        addresses are not public, also over plain http.
    """

    def __init__(self, allowed_hosts: Mapping[str, Sequence[str]]) -> None:
        self._allowed_hosts = allowed_hosts

    def resolve(self, project: str, url: str) -> Destination:
        """Check an address and find out where it leads.

        Raises
        ------
        OutgoingRefusedError
            The URL is malformed, holds credentials, uses another scheme, or leads to an address that is not public and
            whose host is not on the deployment's list.
        OutgoingFailedError
            The name does not resolve.
        """
        parts, host, port = _split(url)
        is_listed = self._is_listed(project, host, port)
        if parts.scheme != "https" and not is_listed:
            raise OutgoingRefusedError(
                "the address must begin with https://; http:// is for hosts that the deployment lists "
                "(OutgoingAllowedHosts)"
            )
        addresses = _look_up(host, port)
        for address in addresses:
            if not is_listed and not _is_public(address):
                raise OutgoingRefusedError(
                    f"{host} leads to an address that is not public; the deployment must list it as an allowed host "
                    "(OutgoingAllowedHosts)"
                )
        path = parts.path or "/"
        return Destination(parts.scheme, host, port, f"{path}?{parts.query}" if parts.query else path, addresses[0])

    def post(
        self,
        project: str,
        url: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        timeout_seconds: float,
        max_bytes: int,
    ) -> HttpAnswer:
        """POST a body; the whole call, from resolution to the last byte, ends within `timeout_seconds`.

        Raises
        ------
        OutgoingRefusedError
            As `resolve`.
        OutgoingFailedError
            No connection, no answer in time, a broken answer, or one of more than `max_bytes`.
        """
        return self.send(
            "POST", self.resolve(project, url), body, headers, timeout_seconds=timeout_seconds, max_bytes=max_bytes
        )

    def send(
        self,
        method: str,
        destination: Destination,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        timeout_seconds: float,
        max_bytes: int,
    ) -> HttpAnswer:
        """Send a request to an address that was resolved; see `post`. With max_bytes 0 no body is read."""
        import urllib3
        from urllib3.exceptions import HTTPError
        from urllib3.exceptions import TimeoutError as HttpTimeoutError

        pool = _pool(destination, timeout_seconds)
        default_port = 443 if destination.scheme == "https" else 80
        host = f"[{destination.host}]" if ":" in destination.host else destination.host
        authority = host if destination.port == default_port else f"{host}:{destination.port}"
        too_late = f"{authority} did not answer to the end within {timeout_seconds:g} s"
        content = b""
        cut = _Cut(pool, timeout_seconds)
        try:
            response = pool.urlopen(
                method,
                destination.path,
                body=body,
                headers={"host": authority, "user-agent": "evalward", **headers},
                redirect=False,
                retries=False,
                preload_content=False,
                decode_content=False,
                timeout=urllib3.Timeout(total=timeout_seconds),
            )
            try:
                if max_bytes:
                    content = _read(response, max_bytes)
            finally:
                response.close()
        except HTTPError as error:
            if cut.is_made or isinstance(error, HttpTimeoutError):
                raise OutgoingFailedError(too_late) from error
            raise OutgoingFailedError(f"{authority} gave no usable answer ({type(error).__name__})") from error
        finally:
            cut.call_off()
            pool.close()
        # What was cut reads like the end of the headers or of the body.
        if cut.is_made:
            raise OutgoingFailedError(too_late)
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, content)

    def _is_listed(self, project: str, host: str, port: int) -> bool:
        listed = list_allowed(self._allowed_hosts, project)
        return host in listed or f"{host}:{port}" in listed


def _split(url: str) -> tuple[SplitResult, str, int]:
    if len(url) > _MAX_URL_LENGTH or any(character <= " " or character == "\x7f" for character in url):
        raise OutgoingRefusedError(f"the address must have at most {_MAX_URL_LENGTH} characters and no spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise OutgoingRefusedError("the address is not a URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise OutgoingRefusedError("the address must be a full https:// URL")
    if parts.username is not None or parts.password is not None:
        raise OutgoingRefusedError("credentials in an address are not taken; name a secret instead")
    if port == 0:
        raise OutgoingRefusedError("the address has no usable port")
    return parts, parts.hostname, port or (443 if parts.scheme == "https" else 80)


def _look_up(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OutgoingFailedError(f"the name {host} does not resolve") from error
    return [str(entry[4][0]) for entry in found]


def _is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _IPV6_NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return inner.is_global and not inner.is_multicast
        if ip not in _IPV6_PUBLIC:
            return False
    return ip.is_global and not ip.is_multicast


def _pool(destination: Destination, timeout_seconds: float) -> Any:
    import urllib3

    timeout = urllib3.Timeout(total=timeout_seconds)
    if destination.scheme == "http":
        return urllib3.HTTPConnectionPool(destination.address, destination.port, timeout=timeout, maxsize=1)
    return urllib3.HTTPSConnectionPool(
        destination.address,
        destination.port,
        timeout=timeout,
        maxsize=1,
        # The certificate must be that of the name, although the connection goes to the address.
        server_hostname=destination.host,
        assert_hostname=destination.host,
        cert_reqs="CERT_REQUIRED",
    )


class _Cut:
    """Shuts a pool's connection down when the time is over.

    A server that sends a byte now and then keeps every single read alive, also inside the headers: the sockets'
    own time-outs never end such a call.
    """

    def __init__(self, pool: Any, timeout_seconds: float) -> None:
        self.is_made = False
        self._sockets: list[socket.socket] = []
        watch = self._watch

        class WatchedConnection(pool.ConnectionCls):
            def connect(self) -> None:
                super().connect()
                watch(self.sock)

        pool.ConnectionCls = WatchedConnection
        self._timer = threading.Timer(timeout_seconds, self._make)
        self._timer.daemon = True
        self._timer.start()

    def call_off(self) -> None:
        """Leave the connection alone from now on."""
        self._timer.cancel()

    def _watch(self, connected: socket.socket) -> None:
        self._sockets.append(connected)
        if self.is_made:
            self._make()

    def _make(self) -> None:
        self.is_made = True
        for each in self._sockets:
            with suppress(OSError):
                # Not SSLSocket's own: that one takes the TLS state away from the thread that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)


def _read(response: Any, max_bytes: int) -> bytes:
    content = bytearray()
    for chunk in response.stream(_CHUNK_BYTES):
        content += chunk
        if len(content) > max_bytes:
            raise AnswerTooLargeError(f"the answer has more than {max_bytes} bytes")
    return bytes(content)
