"""`/evaluate` under a key: the target is called once, the frames are replayed byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from coordination.http.operation import Operation
from coordination.lambda_response import MAX_RESPONSE_BYTES

if TYPE_CHECKING:
    from integration.idempotency.conftest import Answered, Caller, Records, TargetServer


@pytest.fixture
def evaluate(
    evaluator: Callable[[], Caller], operations: Mapping[str, Operation]
) -> Callable[[bytes, str | None], Answered]:
    caller = evaluator()

    def send(frames: bytes, idempotency_key: str | None = None, **options: Any) -> Answered:
        return caller.send(
            operations["evaluate"], frames, idempotency_key, content_type="application/x-ndjson", **options
        )

    return send


def read_frames(answer: Answered) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in answer.content.splitlines()]


def test_frames_are_replayed_byte_for_byte_and_the_target_is_called_once(
    evaluate: Callable[..., Answered], make_frames: Callable[..., bytes], target: TargetServer
) -> None:
    frames = make_frames("one", "two", "three")
    first, again = evaluate(frames, "k"), evaluate(frames, "k")
    assert (first.status, first.headers["content-type"]) == (200, "application/x-ndjson")
    assert [frame["output"] for frame in read_frames(first)[:3]] == [
        "answer to one",
        "answer to two",
        "answer to three",
    ]
    assert (again.status, again.is_replayed, again.content) == (200, True, first.content)
    assert again.headers["content-type"] == "application/x-ndjson"
    assert sorted(call["input"] for call in target.calls) == ["one", "three", "two"]
    assert evaluate(make_frames("one"), "k").code == "idempotency_key_reused"
    assert len(target.calls) == 3


def test_bad_frame_of_a_keyed_call_calls_nothing_and_leaves_the_key_free(
    evaluate: Callable[..., Answered], make_frames: Callable[..., bytes], target: TargetServer, records: Records
) -> None:
    refused = evaluate(make_frames("one", "two") + b"\nno json", "k")
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (400, "/3")
    assert (target.calls, records.states()) == ([], [])
    assert evaluate(make_frames("one"), "k").status == 200


def test_bad_frame_of_an_unkeyed_call_ends_the_answer_after_the_frames_before_it(
    evaluate: Callable[..., Answered], make_frames: Callable[..., bytes], target: TargetServer
) -> None:
    answer = evaluate(make_frames("one", "two") + b"\nno json\n" + make_frames("after").splitlines()[1])
    *before, last = read_frames(answer)
    assert [frame["record"] for frame in before] == ["r0", "r1"]
    assert last["error"]["code"] == "invalid_request"
    assert [call["input"] for call in target.calls] == ["one", "two"]


def test_target_that_hangs_up_is_called_once_and_the_failure_is_the_outcome(
    evaluate: Callable[..., Answered], make_frames: Callable[..., bytes], target: TargetServer
) -> None:
    target.before_answer = lambda: False
    first = evaluate(make_frames("one"), "k")
    assert read_frames(first)[0]["results"][0]["status"] == "error"
    assert evaluate(make_frames("one"), "k").content == first.content
    assert len(target.calls) == 1


def test_time_that_ends_between_calls_ends_the_answer_in_order(
    evaluate: Callable[..., Answered],
    make_frames: Callable[..., bytes],
    target: TargetServer,
    monkeypatch: pytest.MonkeyPatch,
    records: Records,
) -> None:
    monkeypatch.setattr("run_evaluation.evaluate_frames._SPARE_SECONDS", 60.0)
    answer = evaluate(make_frames("one"), "k")
    assert answer.status == 200
    (frame,) = read_frames(answer)
    assert frame["error"]["code"] == "too_little_time"
    assert target.calls == []
    assert evaluate(make_frames("one"), "k").content == answer.content
    assert records.states() == ["completed"]


def test_time_that_ends_without_a_target_is_an_error_and_leaves_the_key_free(
    evaluate: Callable[..., Answered],
    make_frames: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
    records: Records,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("run_evaluation.evaluate_frames._SPARE_SECONDS", 60.0)
        refused = evaluate(make_frames("one", has_target=False), "k")
        assert (refused.status, refused.code) == (503, "too_little_time")
        assert records.states() == []
    assert evaluate(make_frames("one", has_target=False), "k").status == 200


def test_invocation_with_too_little_left_calls_nothing(
    evaluate: Callable[..., Answered], make_frames: Callable[..., bytes], target: TargetServer, records: Records
) -> None:
    refused = evaluate(make_frames("one"), "k", remaining_seconds=9.0)
    assert (refused.status, refused.code) == (503, "too_little_time")
    assert (target.calls, records.states()) == ([], [])


def test_answer_never_grows_past_what_lambda_carries(
    evaluate: Callable[..., Answered], make_frames: Callable[..., bytes], target: TargetServer
) -> None:
    # A quote is escaped in the frame, and both are escaped again in Lambda's response.
    target.make_output = lambda _input: '"' * 100_000
    frames = make_frames(*map(str, range(30)))
    first = evaluate(frames, "k")
    assert first.status == 200
    assert read_frames(first)[-1]["error"]["code"] == "invalid_request"
    assert len(orjson.dumps(first.content.decode())) < MAX_RESPONSE_BYTES
    calls = len(target.calls)
    assert evaluate(frames, "k").code == "idempotency_outcome_not_stored"
    assert len(target.calls) == calls


def test_frames_at_the_limit_of_a_body_are_taken(
    evaluate: Callable[..., Answered], make_frames: Callable[..., bytes]
) -> None:
    settings = make_frames(has_target=False)
    row = orjson.dumps({"id": "r", "input": "x", "output": "y" * 1_000_000})
    assert evaluate(settings + b"\n" + row).status == 200
    refused = evaluate(settings + b"\n" * (4 * 1024 * 1024))
    assert (refused.status, refused.code) == (413, "payload_too_large")


def test_evaluator_that_calls_out_is_refused(evaluate: Callable[..., Answered]) -> None:
    settings = {"evaluators": [{"name": "llm_judge", "params": {"provider": "bedrock", "model": "m", "rubric": "r"}}]}
    refused = evaluate(orjson.dumps(settings) + b'\n{"input": "q", "output": "a"}')
    assert (refused.status, refused.json["errors"][0]["pointer"]) == (400, "/0/evaluators/0/name")
    assert "create a run" in refused.json["errors"][0]["message"]
