"""A running stack in the hands of a test: its API, bucket, queues, database and controls."""

import json
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import Any, Self, cast
from urllib.parse import quote

import boto3
import httpx
import psycopg
from botocore.config import Config
from psycopg.rows import DictRow, dict_row

from evalward_local.stack_file import StackFile

_REQUEST_SECONDS = 60.0
_PATIENCE_SECONDS = 150.0
_POLL_SECONDS = 0.05
# The leases under which a function works: first parts of their names, and seconds.
_LEASES: dict[str, tuple[tuple[str, ...], int]] = {
    "RunEvaluationFunction": (("run", "shard", "finish"), 60),
    "DatasetConversionFunction": (("import", "conversion-slot"), 130),
    "DeliveryFunction": (("webhook", "storage_event"), 60),
}
_END_STATES = frozenset({"succeeded", "failed", "error", "cancelled"})


class StackClient:
    """Talks to a stack as its users, its operators and its chaos do.

    Parameters
    ----------
    stack
        Where it is.
    """

    def __init__(self, stack: StackFile) -> None:
        self.stack = stack
        self._http = httpx.Client(
            base_url=stack.api_url,
            trust_env=False,
            timeout=_REQUEST_SECONDS,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )
        self._kills: list[tuple[tuple[str, ...], int, datetime]] = []
        self._control = httpx.Client(base_url=stack.control_url, trust_env=False, timeout=_REQUEST_SECONDS * 3)

    def __enter__(self) -> Self:
        """Return the client; the end of the block closes its connections."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close the connections."""
        self._http.close()
        self._control.close()
        for client in (self.s3, self.sqs):
            client.close()

    @cached_property
    def s3(self) -> Any:
        """A boto3 client."""
        return self._make_client("s3")

    @cached_property
    def sqs(self) -> Any:
        """A boto3 client."""
        return self._make_client("sqs")

    def _make_client(self, service: Any) -> Any:
        return boto3.client(
            service,
            endpoint_url=(self.stack.s3_endpoint_url if service == "s3" else None) or self.stack.aws_endpoint_url,
            region_name=self.stack.region,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - the stack checks no signature
            config=Config(retries={"max_attempts": 1}),
        )

    def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        idempotency_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **sent: Any,
    ) -> httpx.Response:
        """Call the API.

        Parameters
        ----------
        method, path
            The path may hold a query.
        key
            API key; the installation's first one by default, none when empty.
        idempotency_key
            Value of that header.
        headers
            Further ones.
        sent
            `json`, `content` or `params`, as httpx takes them.
        """
        key = self.stack.admin_key if key is None else key
        every = {"authorization": f"Bearer {key}"} if key else {}
        if idempotency_key is not None:
            every["idempotency-key"] = idempotency_key
        return self._http.request(method, path, headers=every | dict(headers or {}), **sent)

    def expect(self, status: int, method: str, path: str, **sent: Any) -> Any:
        """Call the API, insist on a status and return the JSON of the body (None without one).

        Raises
        ------
        AssertionError
            Another status; the message shows the answer.
        """
        answer = self.request(method, path, **sent)
        if answer.status_code != status:
            raise AssertionError(f"{method} {path}: {answer.status_code} instead of {status}: {answer.text[:2000]}")
        return answer.json() if answer.content else None

    def upload(self, project: str, name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Publish rows as a dataset and return it."""
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path = f"/v1/projects/{project}/datasets?name={quote(name)}&format=jsonl"
        answer = self.request("POST", path, content=content, headers={"content-type": "application/octet-stream"})
        if answer.status_code not in (200, 201):
            raise AssertionError(f"POST {path}: {answer.status_code}: {answer.text[:2000]}")
        return cast("dict[str, Any]", answer.json())

    def drop(self, project: str, name: str, content: bytes) -> str:
        """Put an object below a project's incoming prefix and return its key."""
        key = f"datasets/incoming/{project}/{name}"
        self.s3.put_object(Bucket=self.stack.bucket, Key=key, Body=content)
        return key

    def list_imports(self, project: str) -> list[dict[str, Any]]:
        """Return a project's imports, newest first."""
        return cast("list[dict[str, Any]]", self.expect(200, "GET", f"/v1/projects/{project}/imports")["items"])

    def wait_for_import(self, project: str, uri_end: str) -> dict[str, Any]:
        """Return the newest import of an object when it has ended."""

        def look() -> dict[str, Any] | None:
            ended = [one for one in self.list_imports(project) if one["uri"].endswith(uri_end)]
            return ended[0] if ended and ended[0]["state"] in ("succeeded", "failed") else None

        return self.wait(look, f"import of {uri_end} in {project}")

    def wait_for_run(self, project: str, run_id: str) -> dict[str, Any]:
        """Return a run when it has ended."""

        def look() -> dict[str, Any] | None:
            run = self.expect(200, "GET", f"/v1/projects/{project}/runs/{run_id}?wait_seconds=5")
            return run if run["state"] in _END_STATES else None

        return self.wait(look, f"run {run_id} in {project}")

    def wait[Result](self, look: Callable[[], Result | None], what: str) -> Result:
        """Look again and again until there is something.

        Raises
        ------
        AssertionError
            Nothing in two and a half minutes.
        """
        give_up_at = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < give_up_at:
            if (found := look()) is not None:
                return found
            time.sleep(_POLL_SECONDS)
        raise AssertionError(f"waited {_PATIENCE_SECONDS:.0f} s in vain: {what}")

    def look(self, statement: str, params: Mapping[str, Any] | None = None) -> list[DictRow]:
        """Run a statement as the database's superuser, who sees all tenants, and return the rows if there are any."""
        with psycopg.connect(
            self.stack.superuser_url, autocommit=True, row_factory=cast("Any", dict_row)
        ) as connection:
            cursor = connection.execute(cast("Any", statement), params)
            return cast("list[DictRow]", cursor.fetchall()) if cursor.description else []

    def kill(self, function: str) -> int:
        """SIGKILL all environments of a function (logical id); return how many were in an invocation."""
        return int(self._control.post(f"/functions/{function}/kill").raise_for_status().json()["busy"])

    def fire(self, schedule: str) -> Any:
        """Fire a schedule now and return what its function answered."""
        answer = self._control.post(f"/schedules/{schedule}/fire").raise_for_status().json()
        if answer["function_error"] is not None:
            raise AssertionError(f"{schedule}: {answer}")
        return answer["payload"]

    def invoke(self, function: str, event: Any) -> Any:
        """Invoke a function (logical id) with an event and return what it answered."""
        answer = self._control.post(f"/functions/{function}/invoke", json=event).raise_for_status()
        if "x-amz-function-error" in answer.headers:
            raise AssertionError(f"{function}: {answer.text[:2000]}")
        return answer.json()

    def drain(self, timeout_seconds: int = 60) -> None:
        """Return when nothing runs and nothing is due.

        Raises
        ------
        AssertionError
            Something still runs; the message names it.
        """
        answer = self._control.post(f"/drain?timeout_seconds={timeout_seconds}")
        if answer.status_code != 200:
            raise AssertionError(f"not quiet after {timeout_seconds} s: {answer.text}")

    def queue_url(self, logical_id: str) -> str:
        """Return the URL of a queue by its logical id in the template."""
        urls: list[str] = self.sqs.list_queues().get("QueueUrls", [])
        found = [url for url in urls if f"-{logical_id}-".lower() in f"{url}-".lower()]
        if len(found) != 1:
            raise AssertionError(f"queues named {logical_id}: {found} of {urls}")
        return found[0]

    def send(self, logical_id: str, *messages: Any) -> None:
        """Send messages to a queue."""
        url = self.queue_url(logical_id)
        for message in messages:
            self.sqs.send_message(QueueUrl=url, MessageBody=json.dumps(message))

    def kill_and_expire(self, function: str) -> int:
        """Kill as `kill` does and let the time of the leases be over that the killed held."""
        busy = self.kill(function)
        (now,) = self.look("SELECT clock_timestamp() AS at")
        self._kills.append((*_LEASES[function], now["at"]))
        self._expire_leases_of_the_dead()
        return busy

    def _expire_leases_of_the_dead(self) -> None:
        # A statement that was on its way takes a lease for the dead after the kill; a new environment needs more time
        # than that before it takes its first one.
        for names, seconds, killed_at in self._kills:
            self.look(
                """
                UPDATE coordination.leases
                   SET expires_at = clock_timestamp()
                 WHERE split_part(name, ':', 1) = ANY(%(names)s)
                   AND expires_at > clock_timestamp()
                   AND expires_at - make_interval(secs => %(seconds)s) < %(killed_at)s + interval '200 milliseconds'
                """,
                {"names": list(names), "seconds": seconds, "killed_at": killed_at},
            )

    def recover(self) -> None:
        """Do at once what the pulse does within minutes: send again what was sent and is in nobody's hands."""
        self._expire_leases_of_the_dead()
        self.look(
            """
            UPDATE coordination.wake_ups w
               SET due_at = least(due_at, clock_timestamp()), sent_at = NULL
             WHERE NOT EXISTS (SELECT 1 FROM coordination.leases l
                                WHERE l.name = w.kind || ':' || w.project || ':' || w.ref_id
                                  AND l.expires_at > clock_timestamp())
            """
        )
        self.fire("PulseSchedule")

    def forget_messages(self, logical_id: str) -> None:
        """Empty a queue, messages that are out with killed environments included.

        SQS allows it once a minute: another time within that minute waits for its end.
        """

        def purge() -> bool | None:
            try:
                self.sqs.purge_queue(QueueUrl=self.queue_url(logical_id))
            except self.sqs.exceptions.PurgeQueueInProgress:
                return None
            return True

        self.wait(purge, f"{logical_id} to be emptied")
