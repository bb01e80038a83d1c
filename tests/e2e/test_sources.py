"""A source on the running stack: traces in the bucket, a tick, a pulse, a run with a report."""

import gzip
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from evalward_local.stack_client import StackClient

SECRETS = ("ann@example.com", "sk-ant-api03-abcDEF1234567890", "correct horse")


def nanoseconds(instant: datetime) -> str:
    return str(int(instant.timestamp()) * 10**9)


def make_file(number: int, start: datetime) -> bytes:
    """Make an OTLP file with one trace, as the Collector writes it."""
    answer = json.dumps({"to": SECRETS[0], "password": SECRETS[2], "note": f"the key is {SECRETS[1]}"})
    span = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "parentSpanId": "",
        "name": "chat",
        "startTimeUnixNano": nanoseconds(start),
        "endTimeUnixNano": nanoseconds(start + timedelta(seconds=2)),
        "attributes": [
            {"key": "input.value", "value": {"stringValue": "a question"}},
            {"key": "output.value", "value": {"stringValue": answer}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "7"}},
        ],
    }
    return gzip.compress(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode() + b"\n")


def test_tick_of_a_source_becomes_a_report(client: StackClient, project: str) -> None:
    sources = f"/v1/projects/{project}/sources"
    tick = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=20)
    body: dict[str, Any] = {
        "id": "hourly",
        "connector": "otlp_s3",
        "location": f"s3://{client.stack.bucket}/traces/{project}/",
        "schedule": {"cron": f"{tick.minute} * * * *"},
        "window": {"seconds": 3600, "settle_seconds": 0},
        "evaluators": [{"name": "tokens", "params": {"count": "output"}}, {"name": "pii_leak"}],
        "gates": [{"metric": "pii_leak", "stat": "mean", "min": 1}],
    }
    preview = client.expect(200, "POST", f"{sources}:preview", json=body)
    assert len(preview["next_ticks"]) == 5
    client.expect(201, "POST", sources, json=body, headers={"Idempotency-Key": "make-it"})
    client.expect(201, "POST", sources, json=body, headers={"Idempotency-Key": "make-it"})
    for number in range(1, 31):
        start = tick - timedelta(minutes=number)
        key = f"traces/{project}/{start:year=%Y/month=%m/day=%d/hour=%H/minute=%M}/traces_{number}.json.gz"
        client.s3.put_object(Bucket=client.stack.bucket, Key=key, Body=make_file(number, start))
    # Time passes: the tick before the source was made counts, and is due.
    moved = {"at": tick - timedelta(minutes=1), "project": project}
    client.look("UPDATE scheduler.schedules SET cursor_at = %(at)s WHERE tenant_id = %(project)s", moved)
    client.look(
        "UPDATE coordination.wake_ups SET due_at = clock_timestamp()"
        " WHERE project = %(project)s AND kind = 'source_tick'",
        moved,
    )

    client.fire("ScheduledPullPulse")
    client.drain()

    (window,) = client.expect(200, "GET", f"{sources}/hourly/windows")["items"]
    assert (window["state"], window["traces"]) == ("done", 30)
    run = client.wait_for_run(project, window["run"])
    assert (run["state"], run["progress"]["total"], run["source"]["id"]) == ("succeeded", 30, "hourly")
    report = client.expect(200, "GET", f"/v1/projects/{project}/runs/{run['id']}/report")
    assert report["redactions"] == {"email": 30, "key": 30, "provider_key": 30}
    assert report["usage"]["output_tokens"] == 210
    stored = client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=f"snapshots/{project}/")["Contents"]
    contents = [client.s3.get_object(Bucket=client.stack.bucket, Key=one["Key"])["Body"].read() for one in stored]
    assert not [secret for secret in SECRETS if any(secret.encode() in content for content in contents)]

    # The same pulse again, and a message twice, find nothing to do.
    client.fire("ScheduledPullPulse")
    message = {"kind": "source_tick", "project": project, "ref_id": "hourly"}
    client.send("PullQueue", message, message)
    client.drain()
    assert len(client.expect(200, "GET", f"/v1/projects/{project}/runs")["items"]) == 1

    # By hand, and without one of the traces: a new run, the old one stays.
    path = f"{sources}/hourly/windows/{window['window']['start']}/run"
    excluded = f"{1:032x}"
    client.expect(202, "POST", path, json={"exclude_trace_ids": [excluded]})
    client.drain()
    runs = client.expect(200, "GET", f"/v1/projects/{project}/runs?source=hourly")["items"]
    assert [one["progress"]["total"] for one in runs] == [29, 30]
    report = client.expect(200, "GET", f"/v1/projects/{project}/runs/{runs[0]['id']}/report")
    assert report["excluded_traces"] == [excluded]

    # A deleted run takes its snapshot along.
    client.expect(204, "DELETE", f"/v1/projects/{project}/runs/{run['id']}")
    client.fire("PulseSchedule")
    client.drain()
    left = client.s3.list_objects_v2(Bucket=client.stack.bucket, Prefix=f"snapshots/{project}/{run['id']}/")
    assert left["KeyCount"] == 0
    client.expect(204, "DELETE", f"{sources}/hourly")
