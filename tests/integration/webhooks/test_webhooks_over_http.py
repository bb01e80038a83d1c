from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import api.webhooks.send_ping
import pytest
from coordination.environment import Environment
from evalward_local.webhook_receiver import WebhookReceiver
from standardwebhooks import Webhook

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import Api
    from integration.webhooks.conftest import Delivery

type Make = Callable[..., Any]
PATH = "/v1/projects/demo/webhooks"


def make_body(receiver: WebhookReceiver, **changes: Any) -> dict[str, Any]:
    return {"id": "ci", "url": receiver.url, "events": ["run.finished", "dataset.published"]} | changes


def test_secret_is_in_the_first_answer_and_nowhere_else(
    service: Api, make_project: Make, receiver: WebhookReceiver, database: FreshDatabase,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    make_project()
    body = make_body(receiver)
    first = service.post(PATH, body, idempotency_key="once")
    again = service.post(PATH, body, idempotency_key="once")

    assert (first.status, again.status) == (201, 201)
    secret = first.json["secret"]
    assert secret.startswith("whsec_")
    assert len(Webhook(secret)._whsecret) == 32
    assert again.headers["idempotency-replayed"] == "true"
    assert again.json == {name: value for name, value in first.json.items() if name != "secret"}
    for reply in (service.get(f"{PATH}/ci"), service.get(PATH)):
        assert reply.status == 200
        assert secret.encode() not in reply.content
    assert service.get(f"{PATH}/ci").json == again.json
    assert first.headers["location"] == f"{PATH}/ci"
    dump = subprocess.run(
        [database.server.binaries / "pg_dump", database.server.url(database.name, "superuser")],
        check=True,
        capture_output=True,
    ).stdout
    assert b"dataset.published" in dump
    assert secret.removeprefix("whsec_").encode() not in dump
    assert secret not in capsys.readouterr().out


def test_webhook_made_again_under_its_id_has_another_secret(make_webhook: Make, service: Api) -> None:
    first = make_webhook("hook")
    assert service.call("DELETE", f"{PATH}/hook").status == 204
    second = make_webhook("hook")
    assert first["secret"] != second["secret"]


def test_same_id_in_two_projects_has_two_secrets(make_webhook: Make, service: Api, make_project: Make) -> None:
    # The receiver is listed for `demo` only, so the address is a public one here.
    make_project("other")
    body = {"id": "hook", "url": "https://1.1.1.1/hook", "events": ["ping"]}
    other = service.post("/v1/projects/other/webhooks", body)
    assert other.status == 201, other.json
    assert make_webhook("hook")["secret"] != other.json["secret"]


def test_id_that_is_taken_is_a_409(make_webhook: Make, service: Api, receiver: WebhookReceiver) -> None:
    make_webhook("ci")
    reply = service.post(PATH, make_body(receiver))
    assert (reply.status, reply.code) == (409, "webhook_exists")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "https://127.0.0.1/hook",
        "https://10.0.0.1/hook",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::1]/hook",
        "https://[::ffff:10.0.0.1]/hook",
        "https://user:word@1.1.1.1/hook",
        "https://name.invalid/hook",
        "ftp://1.1.1.1/hook",
        "//1.1.1.1/hook",
        "https://",
        "x",
    ],
)
def test_address_that_may_not_be_called_is_refused(
    service: Api, make_project: Make, receiver: WebhookReceiver, url: str
) -> None:
    make_project()
    reply = service.post(PATH, make_body(receiver, url=url))
    assert (reply.status, reply.code) == (400, "invalid_request"), reply.json
    assert reply.pointers == ["/url"]
    assert service.get(PATH).json["items"] == []


def test_address_listed_for_one_project_is_refused_in_another(
    service: Api, make_project: Make, receiver: WebhookReceiver
) -> None:
    make_project("other")
    reply = service.post("/v1/projects/other/webhooks", make_body(receiver))
    assert (reply.status, reply.pointers) == (400, ["/url"])


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"id": "Capital"}, "/id"),
        ({"id": ""}, "/id"),
        ({"events": []}, "/events"),
        ({"events": ["run.began"]}, "/events/0"),
        ({"events": "ping"}, "/events"),
        ({"secret": "mine"}, "/secret"),
    ],
)
def test_what_is_not_right_is_refused_at_its_pointer(
    service: Api, make_project: Make, receiver: WebhookReceiver, changes: dict[str, Any], pointer: str
) -> None:
    make_project()
    reply = service.post(PATH, make_body(receiver, **changes))
    assert (reply.status, reply.pointers) == (400, [pointer])


def test_event_named_twice_is_told_once(
    service: Api, make_project: Make, receiver: WebhookReceiver, emit: Make, delivery_function: Delivery
) -> None:
    make_project()
    reply = service.post(PATH, make_body(receiver, events=["ping", "run.finished", "ping", "run.finished"]))
    assert reply.json["events"] == ["ping", "run.finished"]
    emit("run.finished")
    assert len(delivery_function.rows()) == 1


def test_list_pages_through_all_webhooks_newest_first(make_webhook: Make, service: Api) -> None:
    for name in ("a", "b", "c"):
        make_webhook(name)
    first = service.get(PATH, query="limit=2").json
    second = service.get(PATH, query=f"limit=2&cursor={first['next_cursor']}").json
    assert [item["id"] for item in first["items"] + second["items"]] == ["c", "b", "a"]
    assert second["next_cursor"] is None


def test_what_is_not_there_is_a_404(service: Api, make_project: Make) -> None:
    make_project()
    calls = [
        ("GET", f"{PATH}/none"),
        ("DELETE", f"{PATH}/none"),
        ("POST", f"{PATH}/none/test"),
        ("GET", f"{PATH}/none/deliveries"),
        ("POST", f"/v1/projects/demo/deliveries/{uuid4()}/redeliver"),
        ("POST", "/v1/projects/demo/deliveries/none/redeliver"),
    ]
    for method, path in calls:
        reply = service.call(method, path)
        assert (reply.status, reply.code) == (404, "not_found"), path


def test_another_project_sees_and_touches_nothing(
    make_webhook: Make, service: Api, make_project: Make, emit: Make, delivery_function: Delivery
) -> None:
    make_webhook("hook")
    emit()
    make_project("other")
    delivery_id = delivery_function.row()["id"]
    for method, path in (
        ("GET", "/v1/projects/other/webhooks/hook"),
        ("DELETE", "/v1/projects/other/webhooks/hook"),
        ("POST", "/v1/projects/other/webhooks/hook/test"),
        ("GET", "/v1/projects/other/webhooks/hook/deliveries"),
        ("POST", f"/v1/projects/other/deliveries/{delivery_id}/redeliver"),
    ):
        assert service.call(method, path).status == 404
    assert service.get("/v1/projects/other/webhooks").json["items"] == []
    assert service.get(f"{PATH}/hook").status == 200


def test_viewer_reads_and_editor_writes(
    make_webhook: Make, service: Api, make_key: Callable[..., str], receiver: WebhookReceiver
) -> None:
    make_webhook("hook")
    viewer, editor = (make_key({"project": "demo", "role": role}) for role in ("viewer", "editor"))
    assert service.get(f"{PATH}/hook", key=viewer).status == 200
    assert service.post(PATH, make_body(receiver), key=viewer).status == 403
    assert service.post(f"{PATH}/hook/test", None, key=viewer).status == 403
    assert service.call("DELETE", f"{PATH}/hook", key=viewer).status == 403
    assert service.post(PATH, make_body(receiver), key=editor).status == 201
    assert service.call("DELETE", f"{PATH}/hook", key=editor).status == 204


class TestPing:
    def test_is_sent_signed_and_its_outcome_kept(
        self, make_webhook: Make, service: Api, receiver: WebhookReceiver
    ) -> None:
        secret = make_webhook("hook", "run.finished")["secret"]
        reply = service.post(f"{PATH}/hook/test", None)
        (call,) = receiver.received
        payload = Webhook(secret).verify(call.body, call.headers)
        assert (payload["type"], payload["data"]) == ("ping", {"project": "demo", "webhook": "hook"})
        assert reply.status == 200
        assert (reply.json["state"], reply.json["response_status"], reply.json["error"]) == ("delivered", 204, None)
        assert (reply.json["id"], reply.json["payload"]) == (call.headers["webhook-id"], payload)
        assert service.get(f"{PATH}/hook/deliveries").json["items"] == [reply.json]

    def test_endpoint_that_refuses_is_an_answer_and_not_tried_again(
        self, make_webhook: Make, service: Api, receiver: WebhookReceiver, delivery_function: Delivery
    ) -> None:
        make_webhook("hook")
        receiver.answer(410)
        reply = service.post(f"{PATH}/hook/test", None)
        assert (reply.status, reply.json["state"], reply.json["response_status"]) == (200, "failed", 410)
        assert reply.json["error"] == "the endpoint answered 410"
        assert delivery_function.leftovers()["wake_ups"] == 0

    def test_repeated_under_its_key_it_is_sent_once(
        self, make_webhook: Make, service: Api, receiver: WebhookReceiver
    ) -> None:
        make_webhook("hook")
        first, again = (service.post(f"{PATH}/hook/test", None, idempotency_key="ping") for _ in range(2))
        assert first.json == again.json
        assert again.headers["idempotency-replayed"] == "true"
        assert len(receiver.received) == 1

    def test_address_that_may_no_longer_be_called_is_not(
        self, make_webhook: Make, service: Api, receiver: WebhookReceiver, database: FreshDatabase
    ) -> None:
        make_webhook("hook")
        database.look("UPDATE evals.webhooks SET url = 'https://169.254.169.254/'")
        reply = service.post(f"{PATH}/hook/test", None)
        assert (reply.status, reply.json["state"]) == (200, "failed")
        assert "not public" in reply.json["error"]
        assert receiver.received == []

    def test_that_may_have_been_sent_is_never_sent_again_by_itself(
        self, make_webhook: Make, service: Api, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_webhook("hook")

        def break_down(*_arguments: object) -> None:
            raise ConnectionError

        with monkeypatch.context() as patch:
            patch.setattr(api.webhooks.send_ping, "call_endpoint", break_down)
            broken = service.post(f"{PATH}/hook/test", None, idempotency_key="ping")
        again = service.post(f"{PATH}/hook/test", None, idempotency_key="ping")
        assert (broken.status, broken.code) == (503, "outcome_unknown")
        assert (again.status, again.code) == (409, "idempotency_in_progress")
        assert receiver.received == []

    def test_error_before_the_sending_lets_the_same_key_try_again(
        self, make_webhook: Make, service: Api, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_webhook("hook")

        def break_down(*_arguments: object) -> None:
            raise ConnectionError

        with monkeypatch.context() as patch:
            patch.setattr(api.webhooks.send_ping, "derive_secret", break_down)
            assert service.post(f"{PATH}/hook/test", None, idempotency_key="ping").status == 500
        assert service.post(f"{PATH}/hook/test", None, idempotency_key="ping").status == 200
        assert len(receiver.received) == 1

    def test_of_a_webhook_deleted_meanwhile_is_answered_and_not_kept(
        self, make_webhook: Make, service: Api, receiver: WebhookReceiver, database: FreshDatabase
    ) -> None:
        make_webhook("hook")

        def delete_and_answer(handler: Any) -> None:
            database.look("DELETE FROM evals.webhooks")
            handler.send_response(204)
            handler.end_headers()

        receiver.answer(delete_and_answer)
        reply = service.post(f"{PATH}/hook/test", None)
        assert (reply.status, reply.json["state"], reply.json["event"]) == (200, "delivered", "ping")
        assert database.look("SELECT id FROM evals.webhook_deliveries") == []


class TestDeliveries:
    def test_are_listed_by_state_newest_first(
        self, make_webhook: Make, service: Api, emit: Make, delivery_function: Delivery, receiver: WebhookReceiver
    ) -> None:
        make_webhook("hook")
        make_webhook("other", "ping")
        receiver.answer(200, 500)
        for number in range(3):
            emit(number=number)
            if number < 2:
                delivery_function.work()
        path = f"{PATH}/hook/deliveries"
        items = service.get(path).json["items"]
        assert [item["payload"]["data"]["number"] for item in items] == [2, 1, 0]
        assert [(item["state"], item["attempts"]) for item in items] == [("queued", 0), ("queued", 1), ("delivered", 1)]
        page = service.get(path, query="state=queued&limit=1").json
        rest = service.get(path, query=f"state=queued&limit=1&cursor={page['next_cursor']}").json
        assert [item["payload"]["data"]["number"] for item in page["items"] + rest["items"]] == [2, 1]
        assert service.get(f"{PATH}/other/deliveries").json["items"] == []

    @pytest.mark.parametrize("status", [200, 500])
    def test_are_sent_again_on_request_under_their_id(
        self, make_webhook: Make, service: Api, emit: Make, delivery_function: Delivery, receiver: WebhookReceiver,
        database: FreshDatabase, status: int,
    ) -> None:  # fmt: skip
        make_webhook("hook")
        receiver.answer(status)
        emit()
        database.look("UPDATE evals.webhook_deliveries SET attempts = 5")
        delivery_function.work()
        before = delivery_function.row()
        assert before["state"] == ("delivered" if status == 200 else "failed")
        # The keeper may have swept the job.
        database.look("DELETE FROM scheduler.jobs")

        path = f"/v1/projects/demo/deliveries/{before['id']}/redeliver"
        replies = [service.post(path, None, idempotency_key="again") for _ in range(2)]
        assert [(reply.status, reply.json["state"], reply.json["attempts"]) for reply in replies] == [
            (202, "queued", 0)
        ] * 2
        delivery_function.work()

        first, second = receiver.received
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert first.body == second.body
        after = delivery_function.row()
        assert (after["state"], after["attempts"], after["error"], after["job"]) == ("delivered", 1, None, "succeeded")
        assert delivery_function.leftovers() == {"wake_ups": 0, "leases": 0}

    def test_under_way_are_due_at_once_on_request(
        self, make_webhook: Make, service: Api, emit: Make, delivery_function: Delivery, receiver: WebhookReceiver
    ) -> None:
        make_webhook("hook")
        receiver.answer(500)
        emit()
        delivery_function.work()
        service.post(f"/v1/projects/demo/deliveries/{delivery_function.row()['id']}/redeliver", None)
        delivery_function.work()
        assert delivery_function.row()["state"] == "delivered"


def test_every_write_is_audited(
    make_webhook: Make, service: Api, environment: Environment, database: FreshDatabase
) -> None:
    make_webhook("hook")
    service.post(f"{PATH}/hook/test", None)
    service.call("DELETE", f"{PATH}/hook")
    operations = [
        row["operation"] for row in database.look("SELECT operation FROM coordination.audit_events ORDER BY id")
    ]
    assert operations == ["webhooks.create", "webhooks.test", "webhooks.delete"]
