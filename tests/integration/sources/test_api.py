from __future__ import annotations

import urllib.parse
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from api.sources.models import UpdateSource
from coordination.clock import format_instant

if TYPE_CHECKING:
    from integration.sources.conftest import World

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
SOURCES = "/v1/projects/demo/sources"
# An address that needs no name server.
PUBLIC = "https://93.184.216.34"


def path_of(start: datetime, action: str) -> str:
    return f"nightly/windows/{format_instant(start)}/{action}"


def due_at(world: World) -> Any:
    rows = world.database.look("SELECT due_at FROM coordination.wake_ups WHERE kind = 'source_tick'")
    return rows[0]["due_at"] if rows else None


def test_source_is_created_complete_and_wakes_up_at_its_next_tick(world: World) -> None:
    source = world.create(window={"seconds": 3600}, starting_deadline_seconds=720)
    assert source["window"] == {"seconds": 3600, "settle_seconds": 600}
    assert (source["max_traces"], source["max_snapshot_bytes"]) == (1000, 64 * 1024 * 1024)
    assert "password" in source["redaction"]["mask_keys"]
    assert "email" in source["redaction"]["patterns"]
    assert source["next_tick"] > source["cursor"]
    assert due_at(world) == datetime.fromisoformat(source["next_tick"]) + 10 * MINUTE
    assert world.read() == source
    assert world.service.get(SOURCES).json["items"] == [source]
    (stored,) = world.database.look("SELECT cron_sets, grammar_version FROM scheduler.schedules")
    assert stored["grammar_version"] == 1
    assert stored["cron_sets"]["hours"] == list(range(24))


@pytest.mark.parametrize(
    ("fields", "pointer", "word"),
    [
        ({"schedule": {"cron": "@daily"}}, "/schedule/cron", "five"),
        ({"schedule": {"cron": "0 0 31 2 *"}}, "/schedule/cron", "never"),
        ({"window": {"seconds": 59}}, "/window/seconds", "60"),
        ({"window": {"seconds": 604_801}}, "/window/seconds", "604800"),
        ({"window": {"seconds": 60, "settle_seconds": 3600}}, "", "3720"),
        ({"max_traces": 10_001}, "/max_traces", "10000"),
        ({"policy": {"sample": 1}}, "/policy", "policies"),
        ({"backfill": True}, "/backfill", "backfill"),
        ({"write_back": None}, "/write_back", "writing"),
        ({"connector": "ftp"}, "/connector", "otlp_s3"),
        ({"location": "s3://evalward-test/traces/other/"}, "/location", "traces/demo/"),
        ({"location": "s3://evalward-test/datasets/demo/"}, "/location", "traces/demo/"),
        ({"location": "s3://elsewhere/traces/demo/"}, "/location", "traces/demo/"),
        ({"location": "s3://evalward-test/traces/demo-2/"}, "/location", "traces/demo/"),
        ({"location": "s3://evalward-test/traces/demo/../other/"}, "/location", "traces/demo/"),
        ({"location": "s3://evalward-test/traces/demo/%2e%2e/"}, "/location", "traces/demo/"),
        ({"evaluators": [{"name": "no_such"}]}, "/evaluators/0/name", "no evaluator"),
        ({"gates": [{"metric": "other", "stat": "mean", "min": 1}]}, "/gates/0/metric", "other"),
        ({"redaction": {"custom": [{"name": "a", "pattern": "(?=x)"}]}}, "/redaction/custom/0/pattern", "RE2"),
        ({"redaction": {"drop_fields": ["$..x"]}}, "/redaction/drop_fields", "path"),
        ({"sinks": [{"kind": "s3", "prefix": "exports/other/"}]}, "/sinks/0/prefix", "exports/demo"),
        ({"mapping": {"no_field": "x"}}, "/mapping", "context"),
        ({"mapping": {"input": "/a~2"}}, "/mapping", ""),
        ({"id": "Bad Id"}, "/id", "lower-case letters"),
    ],
)
def test_source_that_cannot_be_is_refused_at_its_place(
    world: World, fields: dict[str, Any], pointer: str, word: str
) -> None:
    for path in (SOURCES, f"{SOURCES}:preview"):
        reply = world.service.post(path, world.body() | fields)
        assert (reply.status, reply.code) == (400, "invalid_request"), reply.json
        errors = [error for error in reply.json["errors"] if error["pointer"].startswith(pointer)]
        assert errors
        assert any(word in error["message"] for error in errors), errors
    assert world.database.look("SELECT id FROM scheduler.schedules") == []


def test_evaluator_may_call_only_what_the_deployment_lists_for_the_project(world: World) -> None:
    judge = {"name": "llm_judge", "params": {"provider": "bedrock", "model": "m", "rubric": "5 is best"}}
    refused = world.service.post(SOURCES, world.body() | {"evaluators": [judge]})
    assert (refused.status, refused.pointers) == (400, ["/evaluators/0/params/model"])
    world.create()
    refused = world.service.call("PATCH", f"{SOURCES}/nightly", {"evaluators": [judge]})
    assert (refused.status, refused.pointers) == (400, ["/evaluators/0/params/model"])


def test_id_stays_taken_by_a_retired_source(world: World) -> None:
    world.create()
    assert world.service.post(SOURCES, world.body()).code == "source_exists"
    assert world.service.call("DELETE", f"{SOURCES}/nightly").status == 204
    assert due_at(world) is None
    assert world.service.call("DELETE", f"{SOURCES}/nightly").status == 404
    assert world.service.get(f"{SOURCES}/nightly").status == 404
    assert world.service.get(SOURCES).json["items"] == []
    assert world.service.post(SOURCES, world.body()).code == "source_exists"
    world.pull()
    assert world.database.look_up("SELECT count(*) FROM evals.sources") == 1


def test_edited_cron_pause_and_resume_let_ticks_count_from_now_on(world: World) -> None:
    world.create()
    tick = world.last_tick()
    trace = world.add_trace(tick - MINUTE, endTimeUnixNano="0")
    for change in (
        lambda: world.service.call("PATCH", f"{SOURCES}/nightly", {"schedule": {"cron": "0 0 1 * *"}}),
        lambda: world.service.call("PATCH", f"{SOURCES}/nightly", world_cron(world)),
        lambda: world.act("nightly/pause"),
        lambda: world.act("nightly/resume"),
    ):
        before = world.now()
        reply = change()
        assert reply.status == 200, reply.json
        assert datetime.fromisoformat(reply.json["cursor"]) >= before
        world.make_due()
        world.pull()
        assert world.windows() == []
    world.set_cursor(tick - MINUTE)
    world.pull()
    assert [window["trace_id"] for window in world.windows()] == [trace]
    world.act("nightly/pause")
    assert [window["state"] for window in world.windows()] == ["skipped"]
    assert world.database.look("SELECT state FROM scheduler.runs") == [{"state": "cancelled"}]
    assert world.database.look("SELECT state FROM scheduler.graph_jobs") == [{"state": "canceled"}]
    world.make_due()
    world.pull()
    assert due_at(world) is None
    assert world.act("nightly/pause").json["cursor"] == world.read()["cursor"]


def world_cron(world: World) -> dict[str, Any]:
    return {"schedule": world.body()["schedule"]}


def test_edit_that_leaves_the_ticks_alone_leaves_the_cursor_alone(world: World) -> None:
    source = world.create()
    minute = world.last_tick().minute
    body = {"max_traces": 5, "schedule": {"cron": f"{minute:02} 0-23 * * 0-7"}, "labels": {"a": "b"}}
    edited = world.service.call("PATCH", f"{SOURCES}/nightly", body).json
    assert edited["cursor"] == source["cursor"]
    assert (edited["max_traces"], edited["labels"]) == (5, {"a": "b"})
    assert world.service.call("PATCH", f"{SOURCES}/nightly", {"window": {"seconds": 1}}).pointers == ["/window/seconds"]


@pytest.mark.parametrize("connector", ["mlflow", "phoenix"])
def test_null_removes_the_credentials_of_a_store_that_can_do_without(world: World, connector: str) -> None:
    place = {"connector": connector, "endpoint": PUBLIC, "location": "1", "credentials": "evalward/demo/store"}
    source = world.create(**place)
    changed = world.service.call("PATCH", f"{SOURCES}/nightly", {"credentials": None})
    assert (changed.status, changed.json["credentials"]) == (200, None)
    assert world.read() == changed.json
    same = {name: value for name, value in changed.json.items() if name not in ("credentials", "updated_at")}
    assert same == {name: source[name] for name in same}
    assert world.service.call("PATCH", f"{SOURCES}/nightly", {"credentials": None}).status == 200
    back = world.service.call("PATCH", f"{SOURCES}/nightly", {"credentials": "evalward/demo/store"})
    assert back.json["credentials"] == "evalward/demo/store"


def test_null_for_what_a_source_needs_is_refused_at_its_place(world: World) -> None:
    store = {"endpoint": PUBLIC, "location": "p1", "credentials": "evalward/demo/store"}
    for connector in ("mlflow", "phoenix", "langfuse"):
        world.create(connector, connector=connector, **store)
    world.create()
    needed = [
        *(("nightly", field) for field in UpdateSource.model_fields if field not in ("endpoint", "credentials")),
        *((connector, "endpoint") for connector in ("mlflow", "phoenix", "langfuse")),
        ("langfuse", "credentials"),
    ]
    for source_id, field in needed:
        before = world.read(source_id)
        refused = world.service.call("PATCH", f"{SOURCES}/{source_id}", {field: None})
        assert (refused.status, refused.code, refused.pointers) == (400, "invalid_request", [f"/{field}"]), source_id
        assert world.read(source_id) == before
    # Files have neither, so there is nothing to remove.
    assert world.service.call("PATCH", f"{SOURCES}/nightly", {"endpoint": None, "credentials": None}).status == 200


def test_edit_while_a_pull_reads_makes_it_write_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import scheduled_pull.pull_source as pulls

    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    real = pulls._read_window

    def read_while_paused(*arguments: Any) -> Any:
        snapshot = real(*arguments)
        world.act("nightly/pause")
        return snapshot

    with monkeypatch.context() as patch:
        patch.setattr(pulls, "_read_window", read_while_paused)
        world.pull()
    assert world.runs() == []
    assert [window["state"] for window in world.windows()] == ["skipped"]


def test_preview_stores_nothing(world: World) -> None:
    body = world.body(schedule={"cron": "0 2 * * *"}, window={"seconds": 86_400})
    reply = world.act("x", query="").status
    assert reply in (404, 405)
    preview = world.service.post(f"{SOURCES}:preview", body, query="after=2026-11-30T00:00:00Z").json
    assert preview["next_ticks"][:2] == ["2026-11-30T02:00:00Z", "2026-12-01T02:00:00Z"]
    assert len(preview["next_ticks"]) == 5
    assert preview["next_window"] == {"start": "2026-11-29T02:00:00Z", "end": "2026-11-30T02:00:00Z"}
    assert world.service.get(SOURCES).json["items"] == []
    source = world.create()
    assert world.act("nightly/preview").json["next_ticks"][0] == source["next_tick"]
    late = urllib.parse.quote("9999-12-31T23:59:59Z")
    assert world.act("nightly/preview", query=f"after={late}").json == {"next_ticks": [], "next_window": None}


@pytest.mark.parametrize(
    "after",
    ["9999-12-31T23:00:00-14:00", "0001-01-01T00:00:00+14:00", "0", "-1", "2026", "1e9", "1.5e-2", "1764547200.5",
     "2026-12-01", "2026-12-01T00:00:00", "2026-06-30T23:59:60Z", "2026-12-01T24:00:00Z", "infinity", "",
     "2026-12-01T00:00Z", "2026-12-01 00:00:00Z", "2026-12-01_00:00:00Z", "2026-W49-2T00:00:00Z"],
)  # fmt: skip
def test_preview_after_what_is_no_instant_is_refused(world: World, after: str) -> None:
    world.create()
    query = f"after={urllib.parse.quote(after)}"
    for reply in (
        world.act("nightly/preview", query=query),
        world.service.call("POST", f"{SOURCES}:preview", world.body(), query=query),
    ):
        assert (reply.status, reply.code, reply.pointers) == (400, "invalid_request", ["/after"])


def test_missed_window_is_run_by_hand_and_a_done_one_again(world: World) -> None:
    world.create(starting_deadline_seconds=3600)
    tick = world.last_tick()
    world.add_trace(tick - 2 * HOUR - MINUTE)
    world.set_cursor(tick - 3 * HOUR)
    world.pull()
    start = tick - 3 * HOUR
    assert [window["state"] for window in world.windows()][:1] == ["missed_deadline"]
    for count in (1, 2):
        reply = world.act(path_of(start, "run"), {}, idempotency_key=f"by-hand-{count}")
        assert reply.status == 202, reply.json
        assert reply.json["requested_by"].startswith("key:")
        world.pull()
        world.finish_runs()
        assert len(world.runs()) == count
    (window,) = [one for one in world.windows() if datetime.fromisoformat(one["window"]["start"]) == start]
    assert (window["state"], window["run"]) == ("done", world.runs()[1]["id"])
    events = world.database.look("SELECT operation FROM coordination.audit_events WHERE operation LIKE 'sources.run%%'")
    assert len(events) == 2


def test_window_inside_a_gap_is_run_by_hand(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.set_cursor(tick - 200 * HOUR)
    world.pull()
    start = tick - 150 * HOUR
    world.add_trace(start + MINUTE)
    assert world.act(path_of(start, "run"), {}).status == 202
    assert world.act(path_of(start + MINUTE, "run"), {}).status == 404
    assert world.act(path_of(tick - 300 * HOUR, "run"), {}).status == 404
    world.pull()
    assert len(world.runs()) == 1


def test_last_windows_of_a_gap_are_run_by_hand_and_the_gap_ends_before_them(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.set_cursor(tick - 200 * HOUR)
    world.pull()
    (gap,) = [one for one in world.windows() if one["ticks"] > 1]
    last = datetime.fromisoformat(gap["tick"])
    # The window before the last one has an entry when the last one gets its own.
    for end in (last - HOUR, last):
        reply = world.act(path_of(end - HOUR, "run"), {})
        assert (reply.status, reply.json["state"], reply.json["ticks"]) == (202, "requested", 1)
    (shorter,) = [one for one in world.windows() if one["ticks"] > 1]
    assert (datetime.fromisoformat(shorter["tick"]), shorter["ticks"]) == (last - 2 * HOUR, gap["ticks"] - 2)
    assert shorter["window"] == {"start": gap["window"]["start"], "end": shorter["tick"]}


def test_poisoned_trace_is_passed_over_and_the_report_says_so(world: World) -> None:
    world.create()
    tick = world.last_tick()
    trace = world.add_trace(tick - MINUTE, endTimeUnixNano="0")
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    reply = world.act(path_of(tick - HOUR, "run"), {"exclude_trace_ids": [trace]})
    assert (reply.status, reply.json["state"]) == (202, "working")
    world.pull()
    world.finish_runs()
    (run,) = world.runs()
    report = world.service.get(f"/v1/projects/demo/runs/{run['id']}/report").json
    assert report["excluded_traces"] == [trace]
    assert report["records"] == 1
    assert datetime.fromisoformat(world.read()["cursor"]) == tick


def test_window_run_by_hand_that_never_ends_is_given_up_at_its_deadline(world: World) -> None:
    world.create(starting_deadline_seconds=3600)
    tick = world.last_tick()
    world.add_trace(tick - 2 * HOUR - MINUTE, endTimeUnixNano="0")
    world.set_cursor(tick - 3 * HOUR)
    world.pull()
    world.act(path_of(tick - 3 * HOUR, "run"), {})
    world.pull()
    assert world.windows()[0]["state"] == "requested"
    world.database.look("UPDATE evals.source_windows SET deadline_at = clock_timestamp() WHERE deadline_at IS NOT NULL")
    world.make_due()
    world.pull()
    window = world.windows()[0]
    assert (window["state"], window["error_code"]) == ("missed_deadline", "trace_in_progress")


def test_window_that_is_being_tried_is_skipped(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.add_trace(tick - MINUTE, endTimeUnixNano="0")
    world.set_cursor(tick - MINUTE)
    world.pull()
    reply = world.act(path_of(tick - HOUR, "skip"))
    assert (reply.status, reply.json["state"]) == (200, "skipped")
    assert datetime.fromisoformat(world.read()["cursor"]) == tick
    # Who gave it up stands in the audit trail.
    events = "SELECT count(*) FROM coordination.audit_events WHERE operation = 'sources.skip_window'"
    assert world.database.look_up(events) == 1
    assert world.act(path_of(tick - HOUR, "skip")).code == "window_not_open"
    assert world.act(path_of(tick, "skip")).status == 404
    reply = world.act("nightly/windows/yesterday/skip")
    assert (reply.status, reply.code) == (404, "not_found")
    assert "2026-11-30T02:00:00Z" in reply.json["detail"]
    # The instant is the same, its form is not ours.
    assert world.act(f"nightly/windows/{format_instant(tick - HOUR)[:-4]}Z/skip").status == 404
    world.make_due()
    world.pull()
    assert due_at(world) == tick + HOUR


def let_deadlines_pass(world: World) -> None:
    world.database.look(
        "UPDATE evals.source_windows SET deadline_at = clock_timestamp() - interval '1 second'"
        " WHERE deadline_at IS NOT NULL"
    )


@pytest.mark.parametrize("end", ["its deadline", "a skip"])
def test_window_whose_run_by_hand_is_given_up_is_again_what_it_was(world: World, end: str) -> None:
    world.create()
    tick = world.last_tick()
    starts = [tick - hours * HOUR for hours in (4, 3, 2, 1)]
    states = ["missed_deadline", "missed_overlap", "done", "empty"]
    world.add_trace(starts[2] + MINUTE)
    world.set_cursor(tick - 3 * HOUR - MINUTE)
    world.database.look("UPDATE evals.sources SET config = jsonb_set(config, '{starting_deadline_seconds}', '7200')")
    for _ in states:
        world.make_due()
        world.pull()
        world.finish_runs()
    world.database.look(
        "UPDATE evals.source_windows SET state = 'missed_overlap' WHERE window_start = %(at)s", {"at": starts[1]}
    )
    assert [window["state"] for window in world.windows()] == states
    # From now on all of them hold a trace that never ends.
    for start in starts:
        world.add_trace(start + MINUTE, endTimeUnixNano="0")
    before = world.read()
    for start in starts:
        assert world.act(path_of(start, "run"), {}).status == 202
    for _ in starts:
        world.make_due()
        world.pull()
    assert {window["state"] for window in world.windows()} == {"requested"}
    if end == "a skip":
        for start in starts:
            assert world.act(path_of(start, "skip")).status == 200
        states = ["skipped", "skipped", "done", "empty"]
    else:
        let_deadlines_pass(world)
        for _ in starts:
            world.make_due()
            world.pull()
    assert [window["state"] for window in world.windows()] == states
    assert [window["run"] for window in world.windows()] == [None, None, world.runs()[0]["id"], None]
    for counter in ("cursor", "missed_deadline", "missed_overlap"):
        assert world.read()[counter] == before[counter]
    # Nothing is left that would be worked on.
    assert world.database.look("SELECT id FROM scheduler.runs WHERE state = 'planning'") == []
    assert world.database.look("SELECT id FROM scheduler.graph_jobs WHERE state IN ('queued', 'running')") == []


def test_window_that_is_asked_for_is_read_before_those_that_wait_for_another_attempt(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.set_cursor(tick - 3 * HOUR)
    world.pull()
    world.add_trace(tick - 3 * HOUR + MINUTE, endTimeUnixNano="0")
    world.add_trace(tick - 2 * HOUR + MINUTE)
    for hours in (3, 2):
        assert world.act(path_of(tick - hours * HOUR, "run"), {}).status == 202
        world.pull()
    assert [window["state"] for window in world.windows()] == ["requested", "done", "empty"]


def test_skip_gives_up_the_one_window_that_it_names(world: World) -> None:
    world.create()
    tick = world.last_tick()
    world.set_cursor(tick - 4 * HOUR)
    world.pull()
    world.finish_runs()
    for hours in (4, 3, 2):
        world.add_trace(tick - hours * HOUR + MINUTE, endTimeUnixNano="0")
        assert world.act(path_of(tick - hours * HOUR, "run"), {}).status == 202
    for _ in range(3):
        world.make_due()
        world.pull()
    assert world.act(path_of(tick - 3 * HOUR, "skip")).json["state"] == "skipped"
    assert [window["state"] for window in world.windows()][:3] == ["requested", "skipped", "requested"]
    states = world.database.look(
        "SELECT state FROM scheduler.runs WHERE tick_at < %(at)s ORDER BY tick_at", {"at": tick}
    )
    assert [row["state"] for row in states] == ["planning", "cancelled", "planning"]


def test_ledger_pages_newest_first(world: World) -> None:
    world.create()
    world.set_cursor(world.last_tick() - 12 * HOUR)
    world.pull()
    seen: list[str] = []
    query = "limit=5"
    while True:
        page = world.service.get(f"{SOURCES}/nightly/windows", query=query).json
        seen += [window["tick"] for window in page["items"]]
        if page["next_cursor"] is None:
            break
        query = f"limit=5&cursor={page['next_cursor']}"
    assert seen == sorted(set(seen), reverse=True)
    assert len(seen) == 12
    missed = world.service.get(f"{SOURCES}/nightly/windows", query="state=missed_deadline").json["items"]
    assert len(missed) == 11
    assert world.service.get(f"{SOURCES}/none/windows").status == 404


def test_summary_is_that_of_the_latest_tick_that_is_kept(world: World) -> None:
    world.create()
    assert world.service.get(f"{SOURCES}/nightly/summary").json["last_tick"] is None
    tick = world.last_tick()
    world.add_trace(tick - MINUTE)
    world.set_cursor(tick - MINUTE)
    world.pull()
    last = world.service.get(f"{SOURCES}/nightly/summary").json["last_tick"]
    assert (last["state"], last["run_state"], last["records"]) == ("queued", "pending", 1)
    world.service.call("POST", f"/v1/projects/demo/runs/{last['run']}/cancel")
    last = world.service.get(f"{SOURCES}/nightly/summary").json["last_tick"]
    assert (last["state"], last["run_state"]) == ("cancelled", "cancelled")
    world.database.look("DELETE FROM scheduler.runs")
    assert world.service.get(f"{SOURCES}/nightly/summary").json["last_tick"] is None
