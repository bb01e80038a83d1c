from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from records.field_types import TYPE_CHECKS
from records.manifest import decode_manifest
from records.record import read_records
from records.redaction import RedactionRules
from scheduled_pull.record_from_trace import make_row
from scheduled_pull.snapshot import build_snapshot
from scheduled_pull.traces import PullFailedError, Span, Trace

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def span(number: int, parent: int | None = None, *, name: str = "s", seconds: float = 1, **attributes: Any) -> Span:
    start = NOON + timedelta(seconds=number)
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    parent_id = None if parent is None else f"{parent:016x}"
    return Span(f"{number:016x}", parent_id, name, start, start + timedelta(seconds=seconds), named)


def row_of(*spans: Span, mapping: dict[str, str] | None = None) -> dict[str, Any]:
    row = make_row(Trace("trace-1", list(spans), {"service.name": "bot"}, {"env": "prod"}), mapping or {})
    for field, check in TYPE_CHECKS.items():
        assert check(row.get(field)) is None
    return row


def test_openinference_root_gives_input_and_output() -> None:
    row = row_of(span(0, name="chat", input__value="hi", output__value='{"a": 1}', session__id="s-1", custom__x=5))
    assert (row["id"], row["input"], row["output"]) == ("trace-1", "hi", {"a": 1})
    assert row["trajectory"] == {"trace_id": "trace-1", "session_id": "s-1", "steps": []}
    assert row["usage"] == {"latency_ms": 1000.0}
    assert row["metadata"] == {
        "name": "chat", "start_time": "2026-11-30T12:00:00Z", "is_error": False, "attributes": {"custom.x": 5},
        "resource": {"service.name": "bot"}, "tags": {"env": "prod"},
    }  # fmt: skip


def test_messages_of_a_model_below_the_root_are_used_when_the_root_says_nothing() -> None:
    attributes = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "hi",
        "llm.output_messages.0.message.content": "hello",
        "openinference.span.kind": "LLM",
    }
    llm = span(1, 0)
    llm.attributes = attributes
    row = row_of(span(0), llm)
    assert row["input"] == [{"role": "user", "content": "hi"}]
    assert row["output"] == [{"content": "hello"}]


def test_genai_messages_tools_and_documents_are_read() -> None:
    row = row_of(
        span(0, gen_ai__operation__name="invoke_agent", gen_ai__input__messages='[{"role": "user"}]',
             gen_ai__output__messages='[{"role": "assistant"}]'),
        span(1, 0, name="execute_tool search", gen_ai__operation__name="execute_tool", gen_ai__tool__name="search",
             gen_ai__tool__call__arguments='{"q": 1}', gen_ai__tool__call__result="found"),
        span(2, 0, openinference__span__kind="RETRIEVER", **{"retrieval.documents.0.document.content": "passage"}),  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    assert row["input"] == [{"role": "user"}]
    assert row["context"] == ["passage"]
    tool, retriever = row["trajectory"]["steps"]
    assert (tool["type"], tool["name"], tool["args"], tool["output"]) == ("tool", "search", {"q": 1}, "found")
    assert retriever["type"] == "retrieval"


def test_tokens_are_counted_once_where_an_agent_sums_up_its_calls() -> None:
    usage: dict[str, Any] = {
        "gen_ai__usage__input_tokens": 10,
        "gen_ai__usage__output_tokens": 3,
        "gen_ai__usage__cost": 0.25,
    }
    total: dict[str, Any] = {"gen_ai__usage__input_tokens": 20, "gen_ai__usage__output_tokens": 6}
    row = row_of(span(0, **total), span(1, 0, **usage), span(2, 0), span(3, 2, **usage))
    assert row["usage"] == {"input_tokens": 20, "output_tokens": 6, "cost_usd": 0.5, "latency_ms": 1000.0}


@pytest.mark.parametrize("number", ["12", -1, True, 1e300])
def test_tokens_that_are_no_count_are_left_out(number: Any) -> None:
    assert row_of(span(0, gen_ai__usage__input_tokens=number))["usage"] == {"latency_ms": 1000.0}


def test_mapping_takes_attributes_and_places_and_wins() -> None:
    row = row_of(
        span(0, input__value="hi", expected__answer="yes", output__value="raw"),
        mapping={"reference": "expected.answer", "input": "/metadata/tags/env", "output": "no.such"},
    )
    assert (row["reference"], row["input"]) == ("yes", "prod")
    assert "output" not in row


def test_spans_that_point_at_each_other_do_not_hang() -> None:
    row = row_of(span(0), span(1, 2, llm__cost__total=1.0), span(2, 1, llm__cost__total=1.0))
    assert row["usage"] == {"latency_ms": 1000.0}


def test_usage_of_a_long_chain_of_calls_looks_at_each_span_a_few_times() -> None:
    looks: list[str] = []

    class WatchedSpan(Span):
        def __getattribute__(self, name: str) -> Any:
            if name == "parent_id":
                looks.append(name)
            return super().__getattribute__(name)

    spans: list[Span] = []
    for number in range(500):
        one = span(number, number - 1 if number else None, gen_ai__usage__input_tokens=number)
        spans.append(WatchedSpan(one.span_id, one.parent_id, one.name, one.start, one.end, one.attributes))
    # Only the last call is no sum of others.
    assert row_of(*spans)["usage"]["input_tokens"] == 499
    assert len(looks) < 5000


def build(traces: list[Trace], **options: Any) -> Any:
    return build_snapshot(
        traces, options.pop("rules", RedactionRules()), {}, max_bytes=options.pop("max_bytes", 10**7), uri="s3://b/t/"
    )


def test_snapshot_is_the_same_whatever_the_order_and_begins_shards_at_rows() -> None:
    traces = [Trace(f"t-{number}", [span(number, output__value="x")]) for number in range(2500)]
    snapshot, other = build(traces), build(traces[::-1])
    assert snapshot == other
    manifest = decode_manifest(snapshot.manifest)
    assert [shard.record for shard in manifest.shards] == [0, 1000, 2000]
    assert read_records(snapshot.content[manifest.shards[1].offset :])[0].id == "t-1000"
    assert (manifest.sha256, manifest.records, manifest.bytes) == (snapshot.sha256, 2500, len(snapshot.content))


def test_snapshot_is_measured_after_redaction_and_never_cut() -> None:
    trace = Trace("t", [span(0, output__value="x", secret__token="y" * 5000)])
    assert build([trace], max_bytes=1000).redactions == {"key": 1}
    with pytest.raises(PullFailedError) as failure:
        build([Trace("t", [span(0, output__value="x" * 5000)])], max_bytes=1000)
    assert failure.value.code == "snapshot_too_large"


def test_ids_that_redaction_makes_alike_stay_apart() -> None:
    traces = [Trace(f"{name}@example.com", [span(0)]) for name in ("ann", "bob")]
    traces += [Trace("[redacted:email]-3", [span(0)]), Trace("cem@example.com", [span(0)])]
    snapshot = build(traces)
    ids = [record.id for record in read_records(snapshot.content)]
    assert ids == [f"[redacted:email]{end}" for end in ("-3", "", "-2", "-4")]
    assert b"example.com" not in snapshot.content


def test_trace_that_makes_no_record_fails_with_its_id() -> None:
    with pytest.raises(PullFailedError) as failure:
        build([Trace("t-9", [span(0, output__value=float("nan"))])])
    assert (failure.value.code, failure.value.trace_id) == ("trace_not_usable", "t-9")
    deep = orjson.loads("[" * 300 + "]" * 300)
    with pytest.raises(PullFailedError):
        build([Trace("t", [span(0, output__value=deep)])])
