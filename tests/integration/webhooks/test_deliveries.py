# ruff: noqa: PT012 - a transaction is the block that raises
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import coordination.webhooks
import delivery.deliver_webhook
import delivery.handler
import orjson
import pytest
from coordination.environment import Environment
from coordination.events import emit_event, emit_run_finished
from coordination.settings import OutgoingSettings
from delivery.deliver_webhook import RETRY_SECONDS
from evalward_local.webhook_receiver import WebhookReceiver, answer_with
from standardwebhooks import Webhook, WebhookVerificationError

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api, RecordedQueues
    from integration.webhooks.conftest import Delivery

type Make = Callable[..., dict[str, Any]]
type Emit = Callable[..., None]
NOTHING = {"wake_ups": 0, "leases": 0}


class DiedError(BaseException):
    """The environment was killed."""


def test_event_reaches_the_endpoint_signed_and_the_row_says_so(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    secret = make_webhook()["secret"]
    emit(state="succeeded")
    assert (delivery_function.row()["state"], delivery_function.row()["job"]) == ("queued", "queued")
    assert receiver.received == []

    delivery_function.work()

    (call,) = receiver.received
    row = delivery_function.row()
    payload = Webhook(secret).verify(call.body, call.headers)
    assert payload == row["payload"]
    assert (payload["type"], payload["data"]) == ("run.finished", {"state": "succeeded"})
    assert call.headers["webhook-id"] == str(row["id"])
    assert call.headers["content-type"] == "application/json"
    assert (row["state"], row["attempts"], row["response_status"], row["error"]) == ("delivered", 1, 204, None)
    assert (row["job"], row["job_attempts"]) == ("succeeded", 1)
    assert delivery_function.leftovers() == NOTHING
    assert delivery_function.failures == []


def test_signature_is_of_this_body_and_this_secret_only(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    secret, other = make_webhook()["secret"], make_webhook("other", "ping")["secret"]
    emit()
    delivery_function.work()
    (call,) = receiver.received
    assert secret != other
    for text, body in ((other, call.body), (secret, call.body + b" ")):
        with pytest.raises(WebhookVerificationError):
            Webhook(text).verify(body, call.headers)


def test_event_goes_to_every_webhook_that_listens_and_to_no_other(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, environment: Environment
) -> None:
    make_webhook("first", "run.finished", "ping")
    make_webhook("second", "run.finished")
    make_webhook("third", "dataset.published")
    emit(project="demo")
    assert sorted(row["webhook_id"] for row in delivery_function.rows()) == ["first", "second"]


def test_event_of_a_transaction_that_is_rolled_back_never_happened(
    delivery_function: Delivery, make_webhook: Make, environment: Environment, queues: RecordedQueues
) -> None:
    make_webhook()
    with pytest.raises(DiedError), environment.database.transaction("demo") as transaction:
        emit_event(transaction, "run.finished", {})
        raise DiedError
    assert delivery_function.rows() == []
    assert queues.sent == []


def test_endpoint_that_answers_500_and_then_200_gets_the_same_event_twice_under_one_id(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver, queues: RecordedQueues
) -> None:
    secret = make_webhook()["secret"]
    receiver.answer(500, 200)
    emit()

    delivery_function.work()
    row = delivery_function.row()
    assert (row["state"], row["attempts"], row["response_status"]) == ("queued", 1, 500)
    assert row["error"] == "the endpoint answered 500"
    assert row["job"] == "running"
    # The queue holds the message back for as long as the row says.
    assert queues.delays == [5]
    (message,) = (message for _, message in queues.sent)
    delivery_function.pass_time("5 seconds")
    delivery_function.invoke(message)

    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    Webhook(secret).verify(second.body, second.headers)
    row = delivery_function.row()
    assert (row["state"], row["attempts"], row["response_status"], row["error"]) == ("delivered", 2, 200, None)
    assert delivery_function.leftovers() == NOTHING


def test_six_attempts_with_growing_pauses_and_then_it_has_failed(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver, queues: RecordedQueues
) -> None:
    make_webhook()
    receiver.answer(*[503] * 6)
    emit()
    delivery_function.work()

    for attempts, wait in enumerate(RETRY_SECONDS, start=1):
        row = delivery_function.row()
        assert (row["state"], row["attempts"], row["wait"]) == ("queued", attempts, wait)
        # Only what a minute would be too coarse for is left to the queue.
        assert queues.delays == [wait] * (wait < 60)
        queues.sent.clear()
        queues.delays.clear()
        delivery_function.pass_time(f"{wait - 2} seconds")
        assert delivery_function.pulse() == 0
        delivery_function.pass_time("2 seconds")
        if wait >= 60:
            assert delivery_function.pulse() == 1
            delivery_function.work()
        else:
            delivery_function.invoke({"kind": "webhook", "project": "demo", "ref_id": str(row["id"])})

    assert RETRY_SECONDS == (5, 30, 180, 900, 3600)
    row = delivery_function.row()
    assert (row["state"], row["attempts"], row["error"]) == ("failed", 6, "the endpoint answered 503")
    assert row["job"] == "failed"
    assert len({call.headers["webhook-id"] for call in receiver.received}) == 1
    assert len(receiver.received) == 6
    assert delivery_function.leftovers() == NOTHING
    assert delivery_function.failures == []


def test_message_that_the_queue_lost_is_sent_by_the_pulse(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    make_webhook()
    receiver.answer(500)
    emit()
    delivery_function.work()
    delivery_function.take()

    delivery_function.pass_time("306 seconds")
    assert delivery_function.pulse() == 1
    delivery_function.work()

    assert delivery_function.row()["state"] == "delivered"


def test_message_that_could_not_be_sent_is_sent_by_the_pulse(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, queues: RecordedQueues
) -> None:
    make_webhook()
    queues.is_down = True
    emit()
    queues.is_down = False
    assert delivery_function.pulse() == 1
    delivery_function.work()
    assert delivery_function.row()["state"] == "delivered"


def test_message_that_comes_twice_early_or_late_changes_nothing(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    make_webhook()
    receiver.answer(500)
    emit()
    (message,) = delivery_function.take()
    delivery_function.invoke(message)
    # Too early for the second attempt.
    delivery_function.invoke(message, message)
    assert len(receiver.received) == 1
    delivery_function.pass_time("5 seconds")
    delivery_function.invoke(message, message)
    assert len(receiver.received) == 2
    assert delivery_function.row()["state"] == "delivered"
    assert delivery_function.failures == []


def test_message_for_what_is_not_there_is_acknowledged(delivery_function: Delivery, make_project: Make) -> None:
    make_project()
    delivery_function.invoke({"kind": "webhook", "project": "demo", "ref_id": str(uuid4())})
    assert delivery_function.failures == []
    assert delivery_function.leftovers() == NOTHING


def test_sender_killed_before_it_could_say_so_sends_again_under_the_same_id(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    secret = make_webhook()["secret"]
    emit()
    (message,) = delivery_function.take()

    def die(*_arguments: object) -> None:
        raise DiedError

    def keep(*_arguments: object) -> None: ...

    with monkeypatch.context() as patch:
        patch.setattr(delivery.deliver_webhook, "_note", die)
        # A killed environment does not give its lease back.
        patch.setattr(delivery.deliver_webhook, "drop_lease", keep)
        with pytest.raises(DiedError):
            delivery_function.invoke(message)
    row = delivery_function.row()
    assert (row["state"], row["attempts"], row["job"]) == ("queued", 1, "running")
    delivery_function.invoke(message)
    assert len(receiver.received) == 1

    delivery_function.pass_time("61 seconds")
    assert delivery_function.pulse() == 1
    delivery_function.work()

    first, second = receiver.received
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    Webhook(secret).verify(second.body, second.headers)
    row = delivery_function.row()
    assert (row["state"], row["attempts"]) == ("delivered", 2)
    assert delivery_function.leftovers() == NOTHING


def test_last_attempt_that_was_interrupted_is_the_last(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver, database: FreshDatabase
) -> None:
    make_webhook()
    emit()
    database.look("UPDATE evals.webhook_deliveries SET attempts = 6")
    delivery_function.work()
    row = delivery_function.row()
    assert (row["state"], row["error"], row["job"]) == ("failed", "the last attempt was interrupted", "failed")
    assert receiver.received == []
    assert delivery_function.leftovers() == NOTHING


def test_endpoint_that_never_answers_costs_an_attempt_and_no_more_than_its_time(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert coordination.webhooks.TIMEOUT_SECONDS == 10
    monkeypatch.setattr(coordination.webhooks, "TIMEOUT_SECONDS", 0.3)
    make_webhook()
    receiver.answer(receiver.hold)
    emit()
    delivery_function.work()
    row = delivery_function.row()
    assert (row["state"], row["attempts"], row["response_status"]) == ("queued", 1, None)
    assert "did not answer to the end within 0.3 s" in row["error"]


def test_redirect_is_not_followed(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    make_webhook()
    receiver.answer(answer_with(302, location=f"{receiver.url}/elsewhere"))
    emit()
    delivery_function.work()
    assert [call.path for call in receiver.received] == ["/hook"]
    row = delivery_function.row()
    assert (row["state"], row["response_status"]) == ("queued", 302)
    assert "redirects are not followed" in row["error"]


def test_status_counts_and_a_body_however_long_is_not_read(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    make_webhook()
    receiver.answer(answer_with(200, b"x" * 20_000_000), answer_with(500, b"the secret of the endpoint" * 1000))
    emit()
    emit()
    delivery_function.work()
    assert [(row["state"], row["error"]) for row in delivery_function.rows()] in (
        [("delivered", None), ("queued", "the endpoint answered 500")],
        [("queued", "the endpoint answered 500"), ("delivered", None)],
    )


def test_host_that_the_deployment_no_longer_lists_is_not_called(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver,
    make_environments: Callable[..., Environment], environment: Environment, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    make_webhook()
    emit()
    stricter = make_environments(webhooks=environment.settings.webhooks, outgoing=OutgoingSettings())
    monkeypatch.setattr(delivery.handler, "load_environment", lambda: stricter)
    delivery_function.work()
    row = delivery_function.row()
    assert receiver.received == []
    assert (row["state"], row["attempts"], row["response_status"]) == ("queued", 1, None)
    assert "https" in row["error"]


def test_webhook_deleted_while_an_event_is_under_way_ends_it(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, service: Api, receiver: WebhookReceiver,
    database: FreshDatabase,
) -> None:  # fmt: skip
    make_webhook()
    emit()
    messages = delivery_function.take()
    assert service.call("DELETE", "/v1/projects/demo/webhooks/hook").status == 204
    delivery_function.invoke(*messages)
    assert receiver.received == []
    assert delivery_function.rows() == []
    assert database.look_up("SELECT state FROM scheduler.jobs") == "canceled"
    assert delivery_function.leftovers() == NOTHING


def test_what_ended_over_a_month_ago_is_forgotten(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    make_webhook()
    emit()
    delivery_function.work()
    old = delivery_function.row()["id"]
    delivery_function.pass_time("31 days")
    receiver.answer(500)
    emit()
    emit()
    delivery_function.work()
    assert old not in [row["id"] for row in delivery_function.rows()]
    assert sorted(row["state"] for row in delivery_function.rows()) == ["delivered", "queued"]


@pytest.mark.parametrize(
    ("state", "gates", "events"),
    [
        ("succeeded", [{"metric": "token_f1", "passed": True}], ["run.finished"]),
        ("failed", [{"metric": "token_f1", "passed": False}], ["run.finished", "run.gate_failed"]),
        ("error", None, ["run.finished"]),
        ("cancelled", None, ["run.finished"]),
    ],
)
def test_end_of_a_run_says_how_and_where(
    delivery_function: Delivery, make_webhook: Make, environment: Environment, state: str,
    gates: list[dict[str, Any]] | None, events: list[str],
) -> None:  # fmt: skip
    make_webhook("hook", "run.finished", "run.gate_failed")
    run_id = uuid4()
    with environment.database.transaction("demo") as transaction:
        emit_run_finished(transaction, run_id, state, gates, "internal" if state == "error" else None)
    rows = delivery_function.rows()
    assert sorted(row["event"] for row in rows) == events
    path = f"/v1/projects/demo/runs/{run_id}"
    for row in rows:
        assert row["payload"]["data"] == {
            "project": "demo",
            "run": str(run_id),
            "state": state,
            "gates": gates,
            "error": "internal" if state == "error" else None,
            "links": {"run": path} | ({"report": f"{path}/report"} if gates is not None else {}),
        }


def test_body_is_what_the_row_holds(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver
) -> None:
    make_webhook()
    emit(text='ä "quoted" \\ \u2028', number=0.1, nothing=None, nested=[{"a": [1, 2]}])
    delivery_function.work()
    (call,) = receiver.received
    assert orjson.loads(call.body) == delivery_function.row()["payload"]
    assert call.body == orjson.dumps(delivery_function.row()["payload"])


def test_webhook_that_fails_is_a_failure_until_it_is_delivered(
    delivery_function: Delivery, make_webhook: Make, emit: Emit, receiver: WebhookReceiver, database: FreshDatabase
) -> None:
    failures = "SELECT kind, work, state, resolved_by, occurrence_count FROM scheduler.failure_signatures"
    make_webhook()
    emit()
    receiver.answer(500, 503)
    delivery_function.work()
    delivery_function.pass_time("1 hour")
    delivery_function.pulse()
    delivery_function.work()
    (failure,) = database.look(failures)
    assert (failure["kind"], failure["work"], failure["state"]) == ("webhook", "hook", "unresolved")
    # 500 and 503 are numbers: the same kind of error.
    assert failure["occurrence_count"] == 2
    delivery_function.pass_time("1 hour")
    delivery_function.pulse()
    delivery_function.work()
    assert delivery_function.row()["state"] == "delivered"
    (failure,) = database.look(failures)
    assert (failure["state"], failure["resolved_by"]) == ("resolved", "work")
