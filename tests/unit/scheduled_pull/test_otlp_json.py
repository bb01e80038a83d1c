import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduled_pull.otlp_json import OtlpError, TraceParts, read_traces_data
from scheduled_pull.traces import PullFailedError, Span, Trace, floor_nanoseconds, require_complete

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def make_span(**changes: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE_ID,
        "spanId": SPAN_ID,
        "name": "chat",
        "startTimeUnixNano": "1795980000123456789",
        "endTimeUnixNano": "1795980001123456789",
        **changes,
    }


def encode(*spans: dict[str, Any], resource: Any = ()) -> bytes:
    return json.dumps(
        {"resourceSpans": [{"resource": {"attributes": list(resource)}, "scopeSpans": [{"spans": list(spans)}]}]}
    ).encode()


def read(content: bytes) -> dict[str, Trace]:
    parts = TraceParts()
    for part in read_traces_data(content):
        parts.add(part)
    return parts.traces


def test_integers_of_64_bits_are_texts_and_stay_exact() -> None:
    attributes = [
        {"key": "big", "value": {"intValue": "9223372036854775807"}},
        {"key": "small", "value": {"intValue": 5}},
        {"key": "nan", "value": {"doubleValue": "NaN"}},
        {"key": "half", "value": {"doubleValue": 0.5}},
        {"key": "yes", "value": {"boolValue": True}},
        {"key": "list", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": "1"}]}}},
        {"key": "map", "value": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}}},
        {"key": "none", "value": {}},
    ]
    (span,) = read(encode(make_span(attributes=attributes)))[TRACE_ID].spans
    assert span.attributes == {
        "big": 9223372036854775807, "small": 5, "nan": "NaN", "half": 0.5, "yes": True, "list": ["a", 1],
        "map": {"k": "v"}, "none": None,
    }  # fmt: skip


def test_ids_in_base64_are_those_in_hex() -> None:
    trace_id, span_id = (base64.b64encode(bytes.fromhex(text)).decode() for text in (TRACE_ID, SPAN_ID))
    child = make_span(traceId=trace_id, spanId="0000000000000001", parentSpanId=span_id)
    traces = read(encode(make_span(traceId=TRACE_ID.upper()), child))
    assert [span.parent_id for span in traces[TRACE_ID].spans] == [None, SPAN_ID]


def test_nanoseconds_are_floored_to_microseconds_once() -> None:
    assert floor_nanoseconds(1_999_999_999) == datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC)
    assert floor_nanoseconds(-1) == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    (span,) = read(encode(make_span()))[TRACE_ID].spans
    assert span.start.microsecond == 123_456


def test_trace_is_put_together_from_lines_and_files_in_any_order() -> None:
    unfinished = make_span(endTimeUnixNano="0")
    child = make_span(spanId="0000000000000001", parentSpanId=SPAN_ID)
    lines = encode(child) + b"\n\n" + encode(unfinished) + b"\r\n" + encode(make_span()) + b"\n"
    trace = read(lines)[TRACE_ID]
    assert len(trace.spans) == 2
    require_complete(trace)
    assert trace.root.span_id == SPAN_ID


def test_span_that_comes_twice_counts_once_wherever_it_stands() -> None:
    finished, child = make_span(), make_span(spanId="0000000000000001", parentSpanId=SPAN_ID)
    same_line = encode(make_span(endTimeUnixNano="0"), finished, child, child)
    for content in (same_line, same_line + b"\n" + same_line):
        trace = read(content)[TRACE_ID]
        assert [span.span_id for span in trace.spans] == [SPAN_ID, child["spanId"]]
        require_complete(trace)


def test_resources_of_all_parts_are_kept() -> None:
    one, two = ([{"key": key, "value": {"stringValue": "v"}}] for key in ("one", "two"))
    content = encode(make_span(), resource=one) + b"\n" + encode(make_span(), resource=two)
    assert read(content)[TRACE_ID].resource == {"one": "v", "two": "v"}


def test_each_span_is_looked_at_once_however_many_parts_a_trace_has() -> None:
    looks: list[str] = []

    class WatchedSpan(Span):
        def __getattribute__(self, name: str) -> Any:
            looks.append(name)
            return super().__getattribute__(name)

    parts, at = TraceParts(), floor_nanoseconds(0)
    for number in range(1000):
        parts.add(Trace("t", [WatchedSpan(str(number), None, "", at, at)]))
    assert len(parts.traces["t"].spans) == 1000
    assert len(looks) < 5000


def test_bad_line_after_good_ones_is_refused() -> None:
    with pytest.raises(OtlpError):
        read(encode(make_span()) + b"\n{\n" + encode(make_span()))


@pytest.mark.parametrize("levels", [400, 1100, 3000, 30_000])
def test_values_nested_without_end_are_read_or_refused(levels: int) -> None:
    inside = b'{"arrayValue":{"values":[' * levels + b'{"intValue":"1"}' + b"]}}" * levels
    # Invalid UTF-8 takes the other way through the reader.
    for name in (b"key", b"\xff"):
        content = encode(make_span(attributes=[{"key": "NAME", "value": "VALUE"}]))
        content = content.replace(b"NAME", name).replace(b'"VALUE"', inside)
        try:
            (trace,) = read(content).values()
        except OtlpError:
            continue
        assert levels == 400
        assert len(trace.spans) == 1


def test_file_written_over_several_lines_is_one_document() -> None:
    pretty = json.dumps(json.loads(encode(make_span())), indent=2).encode()
    assert list(read(pretty)) == [TRACE_ID]


def test_half_a_surrogate_pair_and_invalid_bytes_are_replaced() -> None:
    content = encode(make_span(name="MARK")).replace(b"MARK", b"\\ud835 \xff")
    (span,) = read(content)[TRACE_ID].spans
    assert span.name == "\ufffd \ufffd"


@pytest.mark.parametrize(
    "content",
    [b"[]", b"{", b'"a"', b"[" * 100_000, encode(make_span(spanId="zz")), encode(make_span(spanId=5)),
     encode(make_span(startTimeUnixNano="x")), encode(make_span(startTimeUnixNano="9" * 40)), b'{"resourceSpans": 5}',
     encode({}), b'{"resourceSpans": [{"scopeSpans": [{"spans": ["a"]}]}]}'],
)  # fmt: skip
def test_what_is_no_otlp_is_refused_and_nothing_else_leaves(content: bytes) -> None:
    with pytest.raises(OtlpError):
        read(content)


NAMES = st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "attributes", "key", "value"])
SCALARS = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(SCALARS, lambda one: st.lists(one) | st.dictionaries(NAMES, one)))
def test_any_json_is_read_or_refused(document: Any) -> None:
    try:
        read(json.dumps(document).encode())
    except OtlpError:
        return


@pytest.mark.parametrize(
    ("spans", "code"),
    [
        ([make_span(parentSpanId="0000000000000009")], "trace_in_progress"),
        ([make_span(endTimeUnixNano="0")], "trace_in_progress"),
        ([make_span(endTimeUnixNano="1")], "trace_in_progress"),
        ([make_span(), make_span(spanId="0000000000000001", parentSpanId=SPAN_ID, endTimeUnixNano="0")],
         "trace_in_progress"),
    ],
)  # fmt: skip
def test_trace_that_is_not_finished_is_told_by_its_spans(spans: list[Any], code: str) -> None:
    with pytest.raises(PullFailedError) as failure:
        require_complete(read(encode(*spans))[TRACE_ID])
    assert (failure.value.code, failure.value.trace_id) == (code, TRACE_ID)


def test_trace_without_spans_or_in_progress_by_the_stores_word_is_refused() -> None:
    with pytest.raises(PullFailedError, match="none of its spans"):
        require_complete(Trace("t", []))
    trace = read(encode(make_span()))[TRACE_ID]
    trace.is_in_progress = True
    with pytest.raises(PullFailedError, match="store says"):
        require_complete(trace)
