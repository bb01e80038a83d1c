from __future__ import annotations

import pytest
from evalward.retry_policy import Outcome, next_delay


@pytest.mark.parametrize("status", [200, 201, 202, 204, 307, 400, 401, 403, 404, 405, 412, 413, 415, 422])
def test_a_definite_answer_is_not_asked_for_again(status: int) -> None:
    outcome = Outcome(status, "some_code")
    assert outcome.is_definite
    assert next_delay(outcome, 1, 0.0) is None


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, None])
def test_what_may_pass_is_tried_again(status: int | None) -> None:
    outcome = Outcome(status)
    assert not outcome.is_definite
    assert next_delay(outcome, 1, 0.0) == 0.25


def test_conflicts_are_definite_but_for_those_that_pass() -> None:
    assert Outcome(409, "project_exists").is_definite
    assert Outcome(409, "idempotency_outcome_not_stored").is_definite
    assert next_delay(Outcome(409, "idempotency_in_progress"), 1, 0.0) is not None
    assert next_delay(Outcome(409, "upload_busy"), 1, 0.0) is not None


def test_an_uncertain_claim_is_neither_definite_nor_helped_by_waiting() -> None:
    outcome = Outcome(409, "idempotency_uncertain")
    assert not outcome.is_definite
    assert next_delay(outcome, 1, 0.0) is None


def test_retry_after_is_the_least() -> None:
    assert next_delay(Outcome(503, retry_after_seconds=17), 1, 0.5) == 17
    assert next_delay(Outcome(503, retry_after_seconds=0), 1, 0.0) == 0.25


def test_delays_grow_to_a_ceiling() -> None:
    assert [next_delay(Outcome(503), attempt, 1.0) for attempt in (1, 2, 3, 4, 5, 6, 1000)] == [0.5, 1, 2, 4, 8, 8, 8]


@pytest.mark.parametrize(
    ("outcome", "may_have_happened"),
    [
        (Outcome(None, was_sent=False), False),
        (Outcome(None), True),
        (Outcome(429), False),
        (Outcome(425), False),
        (Outcome(500), True),
        (Outcome(504), True),
        (Outcome(408), True),
        (Outcome(409, "idempotency_in_progress"), True),
        (Outcome(400), False),
    ],
)
def test_what_leaves_a_write_in_doubt(outcome: Outcome, may_have_happened: bool) -> None:
    assert outcome.may_have_happened is may_have_happened
