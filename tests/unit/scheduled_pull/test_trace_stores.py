"""What the connectors make of stores' answers: scripted, without a network."""

import base64
import itertools
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import orjson
import pytest
from coordination.clock import Deadline
from coordination.ports.http_calls import (
    AnswerTooLargeError,
    Destination,
    HttpAnswer,
    HttpCalls,
    OutgoingFailedError,
    OutgoingRefusedError,
)
from scheduled_pull.collect_traces import collect_traces
from scheduled_pull.connectors.langfuse import LangfuseTraces
from scheduled_pull.connectors.mlflow import MlflowTraces
from scheduled_pull.connectors.phoenix import PhoenixTraces
from scheduled_pull.connectors.port import Connector
from scheduled_pull.connectors.trace_store import TraceStore, make_authorization
from scheduled_pull.record_from_trace import make_row
from scheduled_pull.traces import PullFailedError, Window

START = datetime(2026, 11, 30, 12, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=1))
SECOND = timedelta(seconds=1)

type Answer = Any
type Script = Callable[[str, str, Mapping[str, list[str]], Any], Answer]


@dataclass
class ScriptedCalls:
    """The port of outgoing calls; a script answers: JSON, a whole answer, or an error to be raised."""

    script: Script
    sent: list[tuple[str, str, Mapping[str, str]]] = field(default_factory=list[tuple[str, str, Mapping[str, str]]])

    def resolve(self, _project: str, url: str) -> Destination:
        return Destination("https", urlsplit(url).hostname or "", 443, urlsplit(url).path, "192.0.2.1")

    def send(
        self, method: str, destination: Destination, body: bytes | None, headers: Mapping[str, str], **_limits: Any
    ) -> HttpAnswer:
        self.sent.append((method, destination.path, headers))
        path, _, query = destination.path.partition("?")
        answer = self.script(method, path, parse_qs(query), json.loads(body) if body else None)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, HttpAnswer) else HttpAnswer(200, {}, json.dumps(answer).encode())


@dataclass
class Waits:
    """Keeps what was waited for, and takes no time."""

    seconds: list[float] = field(default_factory=list[float])

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def always(answer: Answer) -> Script:
    """Return a script with one answer to everything."""
    return lambda _method, _path, _query, _body: answer


def one_by_one(*answers: Answer) -> Script:
    """Return a script that goes through answers."""
    left = iter(answers)
    return lambda _method, _path, _query, _body: next(left)


def status(code: int, **headers: str) -> HttpAnswer:
    return HttpAnswer(code, {name.replace("_", "-"): value for name, value in headers.items()}, b"no JSON")


def open_store(script: Script, waits: Waits | None = None, seconds: float = 90.0, **options: Any) -> TraceStore:
    calls = options.get("calls") or ScriptedCalls(script)
    deadline = Deadline(time.monotonic() + seconds)
    return TraceStore(
        cast("HttpCalls", calls),
        "demo",
        options.get("endpoint", "https://store.example.com/root/"),
        options.get("authorization", lambda: None),
        deadline,
        waits or Waits(),
    )


def collect(connector: Connector, excluded: frozenset[str] = frozenset(), max_traces: int = 1000) -> list[str]:
    deadline = Deadline(time.monotonic() + 90)
    return [trace.trace_id for trace in collect_traces(connector, WINDOW, excluded, max_traces, deadline)]


def failure(act: Callable[[], Any]) -> PullFailedError:
    with pytest.raises(PullFailedError) as caught:
        act()
    return caught.value


def nanoseconds(instant: datetime) -> int:
    return int(instant.timestamp()) * 10**9


def mlflow_trace(trace_id: str, start: datetime = START, **info: Any) -> dict[str, Any]:
    span = {
        "trace_id": base64.b64encode(b"0123456789abcdef").decode(),
        "span_id": base64.b64encode(b"12345678").decode(),
        "name": "chat",
        "start_time_unix_nano": nanoseconds(start),
        "end_time_unix_nano": str(nanoseconds(start + SECOND)),
        "attributes": [
            {"key": "mlflow.spanInputs", "value": {"string_value": "q"}},
            {"key": "mlflow.spanOutputs", "value": {"string_value": "a"}},
        ],
        "status": {"code": "STATUS_CODE_ERROR"},
    }
    return {"trace_info": {"trace_id": trace_id, "state": "OK", "tags": {"k": "v"}, **info}, "spans": [span]}


class MlflowFake:
    """A server with offset tokens, that omits unknown traces and fails whole batches for one poisoned trace."""

    def __init__(self, ids: list[str], poisoned: set[str] | None = None, unknown: set[str] | None = None) -> None:
        self.ids, self.poisoned, self.unknown = ids, poisoned or set(), unknown or set()
        self.searches: list[Any] = []
        self.batches: list[list[str]] = []
        self.page_size = 500

    def __call__(self, method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        if path.endswith("/search"):
            assert method == "POST"
            self.searches.append(body)
            if not self.ids:
                return {}
            offset = int(body.get("page_token", "0"))
            page = self.ids[offset : offset + self.page_size]
            more = {"next_page_token": str(offset + self.page_size)} if offset + self.page_size < len(self.ids) else {}
            return {"traces": [{"trace_id": one} for one in page], **more}
        if path.endswith("/batchGet"):
            asked = query["trace_ids"]
            self.batches.append(asked)
            if self.poisoned & set(asked):
                return status(500)
            return {"traces": [mlflow_trace(one) for one in asked if one not in self.unknown]}
        return {"trace": {"trace_info": {"trace_id": path.rsplit("/", 1)[1]}}}


def test_mlflow_is_searched_by_milliseconds_rounded_outwards() -> None:
    fake = MlflowFake([])
    window = Window(START + timedelta(microseconds=1), START + timedelta(seconds=1, microseconds=1))
    assert list(MlflowTraces(open_store(fake), "7").list(window)) == []
    first = nanoseconds(START) // 10**6
    (search,) = fake.searches
    assert search["filter"] == f"trace.timestamp_ms >= {first} AND trace.timestamp_ms < {first + 1001}"
    assert search["locations"] == [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "7"}}]
    assert search["max_results"] == 500


def test_mlflow_trace_is_a_record_without_the_place_of_its_files() -> None:
    def script(*_call: Any) -> Answer:
        return {"traces": [mlflow_trace("tr-1", tags={"k": "v", "mlflow.artifactLocation": "/secret/place"})]}

    (trace,) = MlflowTraces(open_store(script), "7").fetch(["tr-1"])
    row = make_row(trace, {})
    assert (row["id"], row["input"], row["output"]) == ("tr-1", "q", "a")
    assert row["metadata"]["tags"] == {"k": "v"}
    assert row["metadata"]["is_error"] is True
    assert trace.spans[0].span_id == b"12345678".hex()


def test_rows_that_paging_repeats_count_once_and_a_list_of_pages_is_read_until_it_stays() -> None:
    fake = MlflowFake([f"tr-{number}" for number in range(6)])
    fake.page_size = 2
    moved = iter([["tr-0", "tr-9", "tr-1", "tr-2", "tr-3", "tr-4", "tr-5"]])

    def script(method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        answer = fake(method, path, query, body)
        if len(fake.searches) == 1:
            # Between the first and the second page a trace moves behind the place that is being read.
            fake.ids = next(moved)
        return answer

    assert sorted(collect(MlflowTraces(open_store(script), "7"))) == [*(f"tr-{n}" for n in range(6)), "tr-9"]


def test_poisoned_trace_is_found_by_halving_and_named() -> None:
    ids = [f"tr-{number}" for number in range(120)]
    fake = MlflowFake(ids, poisoned={"tr-77"})
    found = failure(lambda: collect(MlflowTraces(open_store(fake), "7")))
    assert (found.code, found.trace_id) == ("trace_without_spans", "tr-77")
    assert len(fake.batches) < 20
    assert len(collect(MlflowTraces(open_store(fake), "7"), frozenset({"tr-77"}))) == 119


def test_store_that_is_down_is_not_taken_for_a_poisoned_trace() -> None:
    fake = MlflowFake(["tr-1", "tr-2"])

    def script(method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        return fake(method, path, query, body) if path.endswith("/search") else status(500)

    found = failure(lambda: collect(MlflowTraces(open_store(script), "7")))
    assert (found.code, found.trace_id) == ("store_unavailable", None)


def test_trace_that_the_store_omits_is_missing() -> None:
    fake = MlflowFake(["tr-1", "tr-2"], unknown={"tr-2"})
    found = failure(lambda: collect(MlflowTraces(open_store(fake), "7")))
    assert (found.code, found.trace_id) == ("trace_missing", "tr-2")


def test_trace_that_the_store_calls_in_progress_waits() -> None:
    def script(_method: str, path: str, *_rest: Any) -> Answer:
        trace = mlflow_trace("tr-1", state="IN_PROGRESS")
        return {"traces": [{"trace_id": "tr-1"}] if path.endswith("/search") else [trace]}

    assert failure(lambda: collect(MlflowTraces(open_store(script), "7"))).code == "trace_in_progress"


def test_batch_that_is_too_large_is_halved() -> None:
    fake = MlflowFake([f"tr-{number}" for number in range(8)])

    def script(method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        if len(query.get("trace_ids", [])) > 2:
            return AnswerTooLargeError("the answer has more than 1 bytes")
        return fake(method, path, query, body)

    assert len(collect(MlflowTraces(open_store(script), "7"))) == 8


def phoenix_span(trace_id: str, number: int, start: datetime = START, **changes: Any) -> dict[str, Any]:
    return {
        "context": {"trace_id": trace_id, "span_id": f"{number:016x}"},
        "name": "chat",
        "span_kind": "CHAIN",
        "parent_id": None,
        "start_time": start.isoformat(),
        "end_time": (start + SECOND).isoformat(),
        "status_code": "OK",
        "attributes": {"input.value": "q", "output.value": "a"},
        "events": [{"name": "exception", "attributes": {"exception.message": "no"}}],
        **changes,
    }


def test_phoenix_spans_come_in_pages_and_a_trace_without_any_is_named() -> None:
    def script(_method: str, path: str, query: Mapping[str, list[str]], _body: Any) -> Answer:
        if path.endswith("/traces"):
            assert query["start_time"] == ["2026-11-30T12:00:00Z"]
            assert (query["sort"], query["order"], query["limit"]) == (["start_time"], ["asc"], ["1000"])
            return {"data": [{"trace_id": "a"}, {"trace_id": "b"}], "next_cursor": None}
        assert path == "/root/v1/projects/my%20project/spans"
        if "cursor" in query:
            return {"data": [phoenix_span("a", 2, parent_id=f"{1:016x}")], "next_cursor": None}
        return {"data": [phoenix_span("a", 1)], "next_cursor": "more"}

    connector = PhoenixTraces(open_store(script), "my project")
    (trace, empty) = connector.fetch(["a", "b"])
    assert [span.span_id for span in trace.spans] == [f"{1:016x}", f"{2:016x}"]
    assert trace.spans[0].attributes["exception.exception.message"] == "no"
    assert make_row(trace, {})["output"] == "a"
    assert empty.spans == []
    found = failure(lambda: collect(connector))
    assert (found.code, found.trace_id) == ("trace_without_spans", "b")


LANGFUSE_FIELDS = {
    "core": {"id", "traceId", "startTime", "endTime", "projectId", "parentObservationId", "type"},
    "basic": {"name", "level", "statusMessage", "version", "environment", "userId", "sessionId"},
    "io": {"input", "output"},
    "metadata": {"metadata"},
    "model": {"providedModelName"},
    "usage": {"usageDetails", "totalCost"},
}


class LangfuseFake:
    """Observations in the shape that Langfuse publishes.

    Pages newest first, each after the place that its cursor names; groups of fields; metadata cut at 200 characters
    unless asked for; a filter whose conditions take the place of parameters about the same column.
    """

    def __init__(self, observations: list[dict[str, Any]], page_size: int = 1000, knows_filter: bool = True) -> None:
        self.observations = sorted(observations, key=self._place, reverse=True)
        self.page_size = page_size
        self.knows_filter = knows_filter
        self.expanded: list[str] = []
        self.asked: list[list[str]] = []

    def __call__(self, method: str, path: str, query: Mapping[str, list[str]], _body: Any) -> Answer:
        assert (method, path) == ("GET", "/root/api/public/v2/observations")
        assert query.keys() <= {"fields", "expandMetadata", "limit", "cursor", "filter", "fromStartTime", "toStartTime"}
        assert 1 <= int(query["limit"][0]) <= 1000
        chosen = self.observations
        if "filter" in query and self.knows_filter:
            (condition,) = orjson.loads(query["filter"][0])
            ids = condition.pop("value")
            assert condition == {"type": "stringOptions", "column": "traceId", "operator": "any of"}
            assert ids
            self.asked.append(ids)
            chosen = [one for one in chosen if one["traceId"] in ids]
        if "fromStartTime" in query:
            first, last = (datetime.fromisoformat(query[name][0]) for name in ("fromStartTime", "toStartTime"))
            chosen = [one for one in chosen if first <= datetime.fromisoformat(one["startTime"]) < last]
        if "cursor" in query:
            after = orjson.loads(base64.b64decode(query["cursor"][0]))
            chosen = [one for one in chosen if self._place(one) < tuple(after.values())]
        page = chosen[: self.page_size]
        meta = {"cursor": self._point_after(page[-1])} if len(chosen) > self.page_size else {}
        names = query.get("expandMetadata", [""])[0].split(",")
        self.expanded += [name for name in names if name]
        return {"data": [self._show(one, query["fields"][0].split(","), names) for one in page], "meta": meta}

    def _place(self, one: dict[str, Any]) -> tuple[str, str, str]:
        return one["startTime"], one["traceId"], one["id"]

    def _point_after(self, one: dict[str, Any]) -> str:
        names = ("lastStartTimeTo", "lastTraceId", "lastId")
        return base64.b64encode(orjson.dumps(dict(zip(names, self._place(one), strict=True)))).decode()

    def _show(self, one: dict[str, Any], fields: list[str], names: list[str]) -> dict[str, Any]:
        seen = LANGFUSE_FIELDS["core"].union(*(LANGFUSE_FIELDS[group] for group in fields))
        shown = {name: value for name, value in one.items() if name in seen}
        if "metadata" in shown:
            shown["metadata"] = {
                name: value if name in names else value[:200] for name, value in shown["metadata"].items()
            }
        return shown


def observation(number: int, trace_id: str, start: datetime, **changes: Any) -> dict[str, Any]:
    def write(instant: datetime) -> str:
        return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    return {
        "id": f"o{number}",
        "traceId": trace_id,
        "projectId": "p1",
        "type": "SPAN",
        "parentObservationId": None,
        "startTime": write(start),
        "endTime": write(start + SECOND),
        "name": "chat",
        "level": "DEFAULT",
        **changes,
    }


def test_langfuse_observations_are_grouped_and_read_whole() -> None:
    generation = observation(
        2,
        "a",
        START + SECOND,
        parentObservationId="o1",
        type="GENERATION",
        usageDetails={"input": 3, "output": 5, "total": 8},
        totalCost=0.25,
        providedModelName="m",
        level="ERROR",
    )
    root = observation(1, "a", START, input="q", output="a", sessionId="s", metadata={"short": "x", "long": "y" * 300})
    fake = LangfuseFake(
        [
            root,
            generation,
            observation(3, "a", START + SECOND, parentObservationId="o1", type="EVENT", endTime=None),
            # Began before the window.
            observation(4, "b", START - SECOND),
            observation(5, "b", START + SECOND, parentObservationId="o4"),
            observation(6, "c", WINDOW.end),
        ],
        page_size=2,
    )
    connector = LangfuseTraces(open_store(fake), "p1")
    assert collect(connector) == ["a"]
    (trace,) = connector.fetch(["a"])
    assert len(trace.spans) == 3
    row = make_row(trace, {})
    assert (row["input"], row["output"]) == ("q", "a")
    assert (row["usage"]["output_tokens"], row["usage"]["cost_usd"]) == (5, 0.25)
    assert row["trajectory"]["session_id"] == "s"
    assert row["metadata"]["attributes"]["metadata.long"] == "y" * 300
    assert "long" in fake.expanded
    assert "short" not in fake.expanded


def test_langfuse_traces_are_read_many_with_one_call() -> None:
    ids = [f"{number:032x}" for number in range(130)]
    observations = [observation(number, trace_id, START) for number, trace_id in enumerate(ids)]
    observations += [
        observation(1000 + number, trace_id, WINDOW.end + number * SECOND, parentObservationId=f"o{number}")
        for number, trace_id in enumerate(ids)
    ]
    fake = LangfuseFake(observations, page_size=30)
    connector = LangfuseTraces(open_store(fake), "p1")
    assert sorted(collect(connector)) == ids
    # Page after page with the same ids: what comes together counts once.
    asked = [ids for ids, _ in itertools.groupby(fake.asked)]
    assert [len(one) for one in asked] == [50, 50, 30]
    assert all(len(trace.spans) == 2 for trace in connector.fetch(ids))


def test_langfuse_ids_that_are_long_are_asked_for_a_few_at_a_time() -> None:
    ids = [f"{number}{'ä/' * 100}" for number in range(9)]
    fake = LangfuseFake([observation(number, trace_id, START) for number, trace_id in enumerate(ids)])
    lines: list[int] = []

    def script(method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        lines.append(len(path) + len(urlencode(query, doseq=True)))
        return fake(method, path, query, body)

    assert sorted(collect(LangfuseTraces(open_store(script), "p1"))) == ids
    assert max(lines) < 4096


def test_langfuse_answer_that_is_too_large_is_asked_for_in_halves() -> None:
    ids = [f"t{number}" for number in range(8)]
    fake = LangfuseFake([observation(number, trace_id, START) for number, trace_id in enumerate(ids)])

    def script(method: str, path: str, query: Mapping[str, list[str]], body: Any) -> Answer:
        if "filter" in query and len(orjson.loads(query["filter"][0])[0]["value"]) > 2:
            return AnswerTooLargeError("the answer has more than 1 bytes")
        return fake(method, path, query, body)

    assert sorted(collect(LangfuseTraces(open_store(script), "p1"))) == ids
    always_too_large = failure(
        lambda: LangfuseTraces(open_store(always(AnswerTooLargeError("too much"))), "p1").fetch(["a"])
    )
    assert always_too_large.code == "answer_too_large"


def test_langfuse_metadata_is_asked_for_whole_where_it_is_cut() -> None:
    fake = LangfuseFake(
        [
            observation(1, "a", START, metadata={"long": "x" * 300}),
            observation(2, "b", START, metadata={"long": "x"}),
            observation(3, "c", START, metadata={"other": "y" * 200}),
            observation(4, "d", START, metadata={"long": "z" * 300}),
        ]
    )
    traces = LangfuseTraces(open_store(fake), "p1").fetch(["a", "b", "c", "d"])
    assert [list(trace.spans[0].attributes.items())[-1] for trace in traces] == [
        ("metadata.long", "x" * 300),
        ("metadata.long", "x"),
        ("metadata.other", "y" * 200),
        ("metadata.long", "z" * 300),
    ]
    assert fake.asked == [["a", "b", "c", "d"], ["a", "d"], ["c"]]
    assert fake.expanded == ["long", "other"]


def test_langfuse_name_with_a_comma_names_its_trace() -> None:
    fake = LangfuseFake(
        [observation(1, "a", START), observation(2, "b", START, metadata={"long, very": "x" * 300})],
    )
    found = failure(lambda: LangfuseTraces(open_store(fake), "p1").fetch(["a", "b"]))
    assert (found.code, found.trace_id) == ("trace_not_usable", "b")


def test_langfuse_trace_without_observations_has_no_spans() -> None:
    fake = LangfuseFake([observation(1, "a", START)])
    traces = LangfuseTraces(open_store(fake), "p1").fetch(["a", "gone"])
    assert [(trace.trace_id, len(trace.spans)) for trace in traces] == [("a", 1), ("gone", 0)]


def test_langfuse_that_does_not_know_the_filter_is_not_taken_at_its_word() -> None:
    fake = LangfuseFake([observation(1, "a", START), observation(2, "b", START - SECOND)], knows_filter=False)
    assert failure(lambda: LangfuseTraces(open_store(fake), "p1").fetch(["a"])).code == "answer_not_usable"


def test_langfuse_generation_without_an_end_is_in_progress() -> None:
    fake = LangfuseFake([observation(1, "a", START, type="GENERATION", endTime=None)])
    assert failure(lambda: collect(LangfuseTraces(open_store(fake), "p1"))).code == "trace_in_progress"


def test_langfuse_keys_of_another_project_read_nothing() -> None:
    fake = LangfuseFake([observation(1, "a", START)])
    assert failure(lambda: collect(LangfuseTraces(open_store(fake), "p2"))).code == "location_refused"


@pytest.mark.parametrize(
    ("secret", "header"),
    [
        ({"public_key": "pk", "secret_key": "sk"}, "Basic " + base64.b64encode(b"pk:sk").decode()),
        ({"username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({"token": "t"}, "Bearer t"),
        ({"token": "t\r\nx: y"}, None),
        ({"password": "p"}, None),
        (["token"], None),
        (None, None),
    ],
)
def test_secret_becomes_a_header_or_nothing(secret: Any, header: str | None) -> None:
    assert make_authorization(secret) == header


def test_retry_after_is_honoured_while_the_pull_has_time() -> None:
    script = one_by_one(status(429, retry_after="7"), status(429, retry_after="20"), status(503), {})
    waits = Waits()
    assert open_store(script, waits).call("/x") == {}
    assert waits.seconds[:2] == [7.0, 20.0]
    assert len(waits.seconds) == 3


def test_store_that_wants_to_be_asked_again_at_once_is_not_hammered() -> None:
    waits = Waits()
    script = one_by_one(*(status(429, retry_after="0") for _ in range(10)), {})
    assert open_store(script, waits).call("/x") == {}
    assert len(waits.seconds) == 10
    assert min(waits.seconds) >= 0.5


def test_retry_after_that_the_pull_has_no_time_for_fails_the_attempt() -> None:
    waits = Waits()
    found = failure(lambda: open_store(always(status(429, retry_after="600")), waits).call("/x"))
    assert (found.code, waits.seconds) == ("store_unavailable", [])
    assert "429" in found.detail


@pytest.mark.parametrize("answer", [status(503), OutgoingFailedError("no usable answer")])
def test_store_that_stays_down_is_given_up_after_four_tries(answer: Any) -> None:
    waits = Waits()
    assert failure(lambda: open_store(always(answer), waits).call("/x")).code == "store_unavailable"
    assert len(waits.seconds) == 3


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (status(401), "credentials_refused"),
        (status(403), "credentials_refused"),
        (status(404), "location_unknown"),
        (status(302, location="http://169.254.169.254/"), "endpoint_refused"),
        (status(422), "store_refused"),
        (OutgoingRefusedError("not public"), "endpoint_refused"),
        (AnswerTooLargeError("the answer has more than 1 bytes"), "answer_too_large"),
        (HttpAnswer(200, {}, b"<html>"), "answer_not_usable"),
    ],
)
def test_what_no_other_try_would_change_is_not_tried_again(answer: Any, code: str) -> None:
    waits = Waits()
    found = failure(lambda: open_store(always(answer), waits).call("/x"))
    assert (found.code, waits.seconds) == (code, [])
    assert "169.254" not in found.detail


def test_credentials_are_sent_and_the_path_of_the_endpoint_is_kept() -> None:
    calls = ScriptedCalls(always({}))
    store = open_store(always({}), calls=calls, authorization=lambda: "Bearer t")
    store.call("/x", [("a", "1"), ("a", "2")])
    store.call("/y", body={})
    (get, post) = calls.sent
    assert (get[0], get[1], get[2]["authorization"]) == ("GET", "/root/x?a=1&a=2", "Bearer t")
    assert (post[0], post[1], post[2]["content-type"]) == ("POST", "/root/y", "application/json")


@pytest.mark.parametrize("tokens", [["1", "1"], ["1", "2", "1"]])
def test_page_token_that_repeats_fails_the_attempt(tokens: list[str]) -> None:
    left = iter(tokens)

    def script(*_call: Any) -> Answer:
        return {"traces": [{"trace_id": "tr-1"}], "next_page_token": next(left)}

    assert failure(lambda: collect(MlflowTraces(open_store(script), "7"))).code == "pages_never_end"


def test_pages_that_never_end_fail_the_attempt() -> None:
    script = one_by_one(*({"traces": [], "next_page_token": f"t{number}"} for number in range(2000)))
    found = failure(lambda: collect(MlflowTraces(open_store(script), "7")))
    assert found.code == "pages_never_end"


def test_pull_ends_with_its_deadline() -> None:
    found = failure(lambda: open_store(always({}), seconds=-1).call("/x"))
    assert found.code == "pull_timeout"


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"traces": [{}]},
        {"traces": 7},
        {"traces": [{"trace_id": "tr-1"}], "next_page_token": 7},
    ],
)
def test_answer_of_another_shape_fails_the_attempt(answer: Any) -> None:
    found = failure(lambda: collect(MlflowTraces(open_store(always(answer)), "7")))
    assert found.code in ("answer_not_usable", "trace_without_spans", "pages_never_end")


@pytest.mark.parametrize(
    "span",
    [
        {},
        {"context": {"trace_id": "a", "span_id": "1"}},
        phoenix_span("a", 1, start_time="yesterday"),
        phoenix_span("a", 1, attributes=[1]),
        {"context": None},
    ],
)
def test_span_of_another_shape_fails_the_attempt_and_quotes_nothing(span: Any) -> None:
    def script(_method: str, path: str, *_rest: Any) -> Answer:
        return {"data": [{"trace_id": "a"}] if path.endswith("/traces") else [span], "next_cursor": None}

    found = failure(lambda: collect(PhoenixTraces(open_store(script), "p")))
    assert found.code in ("answer_not_usable", "trace_without_spans")
    assert "yesterday" not in found.detail
