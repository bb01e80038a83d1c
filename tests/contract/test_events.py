"""Each sample in events/ is fed, word for word, to the function it is for.

The world they speak of: project `demo`, the bucket `evalward-data`, one API key. Ids that only a function can make are
replaced before the event is fed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY

import api.handler
import boto3
import capacity_probe.handler
import coordination.http.border
import dataset_conversion.handler
import delivery.handler
import pytest
import retention_sweep.handler
import run_evaluation.handler
import scheduled_pull.handler
import schema_migration.handler
from coordination.access import parse_token
from coordination.environment import Environment, make_environment
from coordination.ports.objects import Objects
from coordination.ports.secrets import Secrets
from coordination.settings import QueueSettings, Settings, StorageSettings
from evalward_local.running_stack import PROJECT_FOLDER
from moto import mock_aws
from psycopg.types.json import Jsonb
from pydantic import SecretStr
from schema_migration.settings import MigrationSettings

if TYPE_CHECKING:
    from conftest import FreshDatabase

EVENTS = PROJECT_FOLDER / "events"
BUCKET = "evalward-data"
KEY = "ew_0123456789abcdef_" + "5eed" * 16
RUN = "1b6f3f0e-4a55-4d0e-9a57-0a4f5c2e7d11"
SHARD = "2c7f4a1f-5b66-4e1f-8b68-1b5a6d3f8e22"
STORAGE_EVENT = "5fac7d42-8e99-4142-9e9b-4e8d9062b155"
IMPORT = "3d8a5b20-6c77-4f20-9c79-2c6b7e409f33"
ROWS = b"".join(
    b'{"id":"ticket-%d","question":"Q","response":"yes","expected":"%s","usage":{"latency_ms":%d}}\n'
    % (number, b"yes" if number % 2 else b"no", number)
    for number in range(1, 5)
)
HANDLERS: dict[str, Callable[[Any, Any], Any]] = {
    "api": api.handler.lambda_handler,
    "dataset_conversion": dataset_conversion.handler.lambda_handler,
    "run_evaluation": run_evaluation.handler.lambda_handler,
    "delivery": delivery.handler.lambda_handler,
    "retention_sweep": retention_sweep.handler.lambda_handler,
    "scheduled_pull": scheduled_pull.handler.lambda_handler,
    "schema_migration": schema_migration.handler.lambda_handler,
    "capacity_probe": capacity_probe.handler.lambda_handler,
}
NO_FAILURES = {"batchItemFailures": []}


class Context:
    """Lambda's context object."""

    aws_request_id = "00000000-0000-0000-0000-000000000001"
    function_name = "function"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-central-1:123456789012:function:function"

    def get_remaining_time_in_millis(self) -> int:
        return 48_000


def feed(name: str, *replacements: tuple[str, str]) -> Any:
    """Give a sample to its function and return the answer."""
    text = (EVENTS / f"{name}.json").read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return HANDLERS[name.partition(".")[0]](json.loads(text), Context())


@dataclass
class SentMessages:
    """A queue port that keeps what was sent."""

    messages: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])

    def send(self, url: str, bodies: Sequence[str], delay_seconds: int = 0) -> None:
        self.messages += [(url, json.loads(body)) for body in bodies]

    def take_ref_id(self, kind: str) -> str:
        """Return the newest reference of this kind."""
        return next(message["ref_id"] for _, message in reversed(self.messages) if message["kind"] == kind)


@pytest.fixture
def sent() -> SentMessages:
    return SentMessages()


@pytest.fixture
def world(database: FreshDatabase, sent: SentMessages, monkeypatch: pytest.MonkeyPatch) -> Generator[FreshDatabase]:
    """Make what the samples speak of."""
    token = parse_token(KEY)
    assert token is not None
    database.look(
        "INSERT INTO coordination.api_keys (id, name, secret_sha256, grants, created_by)"
        " VALUES (%(id)s, 'of the samples', %(secret)s, %(grants)s, 'test')",
        {"id": token.key_id, "secret": token.secret_sha256, "grants": Jsonb([{"project": "*", "role": "owner"}])},
    )
    database.look("INSERT INTO coordination.projects (id, created_by) VALUES ('demo', 'test')")
    settings = Settings(
        database_url=SecretStr(database.app_url),
        storage=StorageSettings(bucket=BUCKET),
        queues=QueueSettings(conversion_url="conversion", evaluation_url="evaluation", delivery_url="delivery"),
    )
    environment: Environment = make_environment(settings, sent, Objects(BUCKET), Secrets())
    for border in (
        api.handler,
        coordination.http.border,
        dataset_conversion.handler,
        run_evaluation.handler,
        delivery.handler,
        retention_sweep.handler,
        scheduled_pull.handler,
    ):
        monkeypatch.setattr(border, "load_environment", lambda: environment)
    with mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        client.put_object(Bucket=BUCKET, Key="datasets/incoming/demo/support-answers.jsonl", Body=ROWS)
        yield database
        environment.database.close()


@pytest.fixture
def dataset(world: FreshDatabase, sent: SentMessages) -> None:
    """Publish the dataset that the samples name."""
    feed("dataset_conversion.s3_object_created")
    answer = feed("dataset_conversion.import_message", (IMPORT, sent.take_ref_id("import")))
    assert answer == NO_FAILURES


@pytest.fixture
def run_id(dataset: None, sent: SentMessages) -> str:
    """Create the run that the samples name."""
    assert feed("api.create_run")["statusCode"] == 202
    return sent.take_ref_id("run")


def list_imports(world: FreshDatabase) -> list[dict[str, Any]]:
    rows = world.look("SELECT payload ->> 'key' AS key, state, error FROM scheduler.jobs ORDER BY created_at")
    return [dict(row) for row in rows]


def check_problem(answer: dict[str, Any], status: int, code: str) -> dict[str, Any]:
    assert answer["statusCode"] == status, answer["body"]
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    problem = json.loads(answer["body"])
    assert (problem["status"], problem["code"]) == (status, code)
    return problem


class TestApi:
    def test_health(self, world: FreshDatabase) -> None:
        answer = feed("api.healthz")
        assert answer["statusCode"] == 200
        assert json.loads(answer["body"])["status"] == "ok"

    def test_create_project(self, world: FreshDatabase) -> None:
        answer = feed("api.create_project")
        assert answer["statusCode"] == 201
        assert answer["headers"]["location"] == "/v1/projects/support"
        assert answer["headers"]["x-request-id"].startswith("JKJaXmPLvHcES")

    def test_create_run_and_its_repetition_under_a_quoted_key(
        self, world: FreshDatabase, dataset: None, sent: SentMessages
    ) -> None:
        first, second = feed("api.create_run"), feed("api.quoted_idempotency_key")
        assert (first["statusCode"], second["statusCode"]) == (202, 202)
        assert second["headers"]["idempotency-replayed"] == "true"
        assert second["body"] == first["body"]
        created = json.loads(first["body"])["id"]
        assert sent.messages[-1] == (
            "evaluation",
            {"kind": "run", "project": "demo", "ref_id": created, "request_id": ANY},
        )
        assert world.look_up("SELECT count(*) FROM evals.runs") == 1

    def test_joined_idempotency_keys_are_refused(self, world: FreshDatabase) -> None:
        check_problem(feed("api.joined_headers"), 400, "invalid_idempotency_key")

    def test_import_on_request(self, world: FreshDatabase, sent: SentMessages) -> None:
        answer = feed("api.import_dataset")
        assert answer["statusCode"] == 202
        queued = json.loads(answer["body"])
        assert queued["state"] == "queued"
        assert sent.messages == [
            ("conversion", {"kind": "import", "project": "demo", "ref_id": queued["id"], "request_id": ANY})
        ]

    def test_wait_for_a_run(self, run_id: str) -> None:
        answer = feed("api.wait_for_run", (RUN, run_id))
        assert answer["statusCode"] == 200
        assert json.loads(answer["body"])["state"] == "pending"

    def test_base64_body_is_the_body(self, world: FreshDatabase) -> None:
        answer = feed("api.base64_body")
        assert answer["statusCode"] == 201
        assert json.loads(answer["body"])["id"] == "encoded"

    @pytest.mark.parametrize("case", ["invalid_base64_body", "absent_body", "empty_body"])
    def test_body_that_is_none_is_refused(self, world: FreshDatabase, case: str) -> None:
        check_problem(feed(f"api.{case}"), 400, "invalid_request")
        assert world.look_up("SELECT count(*) FROM coordination.projects") == 1

    def test_header_names_are_taken_in_any_case(self, world: FreshDatabase) -> None:
        answer = feed("api.header_names_in_capitals")
        assert answer["statusCode"] == 200
        assert json.loads(answer["body"])["principal"] == "key:0123456789abcdef"

    def test_decoded_path_is_not_decoded_again(self, world: FreshDatabase) -> None:
        check_problem(feed("api.decoded_raw_path"), 404, "not_found")

    def test_query_parameter_that_stands_twice_is_refused(self, world: FreshDatabase) -> None:
        problem = check_problem(feed("api.multi_value_query"), 400, "invalid_request")
        assert [error["pointer"] for error in problem["errors"]] == ["/limit"]

    def test_unknown_query_parameter_is_refused(self, world: FreshDatabase) -> None:
        problem = check_problem(feed("api.unknown_query_parameter"), 400, "invalid_request")
        assert [error["pointer"] for error in problem["errors"]] == ["/colour"]

    def test_no_key(self, world: FreshDatabase) -> None:
        check_problem(feed("api.no_key"), 401, "unauthenticated")

    def test_text_body(self, world: FreshDatabase) -> None:
        check_problem(feed("api.text_body"), 415, "unsupported_media_type")

    def test_unknown_path(self, world: FreshDatabase) -> None:
        check_problem(feed("api.unknown_path"), 404, "not_found")


class TestDatasetConversion:
    def test_upload_delivered_as_base64_and_as_text_is_the_same(self, world: FreshDatabase) -> None:
        first, second = feed("dataset_conversion.upload"), feed("dataset_conversion.upload_as_text")
        assert (first["statusCode"], second["statusCode"]) == (201, 200)
        assert json.loads(first["body"]) == json.loads(second["body"])
        assert json.loads(first["body"])["records"] == 2

    @pytest.mark.parametrize("case", ["s3_object_created", "s3_multipart_upload"])
    def test_new_object_is_an_import_and_the_same_event_again_is_none(
        self, world: FreshDatabase, sent: SentMessages, case: str
    ) -> None:
        answers = [feed(f"dataset_conversion.{case}") for _ in range(2)]
        assert answers == [NO_FAILURES, NO_FAILURES]
        assert list_imports(world) == [
            {"key": "datasets/incoming/demo/support-answers.jsonl", "state": "queued", "error": None}
        ]
        assert [url for url, _ in sent.messages] == ["conversion"]

    @pytest.mark.parametrize("case", ["s3_test_event", "folder_object", "s3_object_removed", "s3_unknown_project"])
    def test_what_is_no_new_object_of_a_project_is_acknowledged(
        self, world: FreshDatabase, sent: SentMessages, case: str
    ) -> None:
        assert feed(f"dataset_conversion.{case}") == NO_FAILURES
        assert list_imports(world) == []
        assert sent.messages == []

    @pytest.mark.parametrize(
        ("case", "key"),
        [
            ("s3_url_encoded_key", "two words+more.jsonl"),
            ("s3_deeper_folder", "2026/support-answers.jsonl"),
            ("s3_twice_encoded_key", "..%2Fother.jsonl"),
        ],
    )
    def test_object_that_cannot_be_imported_is_a_failed_import(
        self, world: FreshDatabase, sent: SentMessages, case: str, key: str
    ) -> None:
        assert feed(f"dataset_conversion.{case}") == NO_FAILURES
        (failed,) = list_imports(world)
        assert (failed["key"], failed["state"]) == (f"datasets/incoming/demo/{key}", "failed")
        assert failed["error"]["code"] == "import_refused"
        assert sent.messages == []

    def test_import_message_makes_the_dataset_once(self, world: FreshDatabase, sent: SentMessages) -> None:
        feed("dataset_conversion.s3_object_created")
        ref_id = sent.take_ref_id("import")
        answers = [feed("dataset_conversion.import_message", (IMPORT, ref_id)) for _ in range(2)]
        assert answers == [NO_FAILURES, NO_FAILURES]
        assert [one["state"] for one in list_imports(world)] == ["succeeded"]
        assert world.look("SELECT name, version, records FROM packs.packs") == [
            {"name": "support-answers", "version": 1, "records": 4}
        ]
        assert world.look("SELECT id FROM coordination.wake_ups WHERE queue <> 'delivery'") == []

    def test_export_of_a_run_that_is_gone_is_acknowledged(self, world: FreshDatabase) -> None:
        assert feed("dataset_conversion.sink_message") == NO_FAILURES

    def test_unknown_message_goes_back(self, world: FreshDatabase) -> None:
        answer = feed("dataset_conversion.unknown_message")
        assert answer == {"batchItemFailures": [{"itemIdentifier": "059f36b4-87a3-44ab-83d2-661975880001"}]}


class TestRunEvaluation:
    def test_messages_take_a_run_from_pending_to_succeeded_however_often_they_come(
        self, world: FreshDatabase, run_id: str, sent: SentMessages
    ) -> None:
        # Too early: the run has not ended, so finishing it does nothing.
        assert feed("run_evaluation.finish_message", (RUN, run_id)) == NO_FAILURES
        for _ in range(2):
            assert feed("run_evaluation.run_message", (RUN, run_id)) == NO_FAILURES
        shard_id = sent.take_ref_id("shard")
        assert world.look_up("SELECT state FROM evals.runs") == "running"
        for _ in range(2):
            assert feed("run_evaluation.shard_message", (SHARD, shard_id)) == NO_FAILURES
        assert world.look_up("SELECT state FROM evals.runs") == "succeeded"
        report = world.look_up("SELECT report FROM evals.runs")
        for _ in range(2):
            assert feed("run_evaluation.finish_message", (RUN, run_id)) == NO_FAILURES
        assert world.look_up("SELECT report FROM evals.runs") == report
        assert [metric["mean"] for metric in report["metrics"]] == [0.5, 2.5]
        assert world.look_up("SELECT count(*) FROM evals.run_results") == 8
        assert world.look("SELECT id FROM coordination.wake_ups WHERE queue <> 'delivery'") == []

    def test_frames_are_scored_at_once(self, world: FreshDatabase) -> None:
        answer = feed("run_evaluation.evaluate")
        assert answer["statusCode"] == 200
        first, second, last = map(json.loads, answer["body"].splitlines())
        assert [frame["results"][0]["score"] for frame in (first, second)] == [1.0, 0.0]
        assert last["summary"]["metrics"][0]["mean"] == 0.5

    def test_messages_for_what_does_not_exist_are_acknowledged(self, world: FreshDatabase) -> None:
        for kind in ("run", "shard", "finish"):
            assert feed(f"run_evaluation.{kind}_message") == NO_FAILURES

    def test_only_the_bad_messages_of_a_batch_go_back(self, world: FreshDatabase, run_id: str) -> None:
        answer = feed("run_evaluation.batch_with_a_bad_message", (RUN, run_id))
        failed = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        assert failed == [f"059f36b4-87a3-44ab-83d2-66197588000{number}" for number in (2, 3)]
        assert world.look_up("SELECT state FROM evals.runs") == "running"


def test_pulse_sends_what_is_due_and_unsent(world: FreshDatabase, run_id: str, sent: SentMessages) -> None:
    world.look("DELETE FROM coordination.wake_ups WHERE queue = 'delivery'")
    world.look("UPDATE coordination.wake_ups SET sent_at = NULL")
    sent.messages.clear()

    assert [feed("delivery.pulse") for _ in range(2)] == [{"sent": 1}, {"sent": 0}]

    assert sent.messages == [("evaluation", {"kind": "run", "project": "demo", "ref_id": run_id})]


def test_storage_event_is_published_once(world: FreshDatabase, dataset: None, sent: SentMessages) -> None:
    event_id = sent.take_ref_id("storage_event")

    for _ in range(2):
        assert feed("delivery.storage_event_message", (STORAGE_EVENT, event_id)) == NO_FAILURES

    assert world.look_up("SELECT count(*) FROM coordination.wake_ups WHERE kind = 'storage_event'") == 0


@pytest.mark.parametrize("case", ["webhook_message", "storage_event_message", "sink_message"])
def test_delivery_of_what_does_not_exist_is_acknowledged(world: FreshDatabase, case: str) -> None:
    assert feed(f"delivery.{case}") == NO_FAILURES


@pytest.mark.parametrize("sweep", ["runs", "orphans", "uploads", "keeper"])
def test_sweep_touches_nothing_that_is_in_use(world: FreshDatabase, run_id: str, sweep: str) -> None:
    feed(f"retention_sweep.{sweep}")

    assert world.look_up("SELECT count(*) FROM evals.runs") == 1
    objects = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix="datasets/demo/").get("Contents", [])
    assert len(objects) == 2


def test_probe_leaves_a_receipt(world: FreshDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(database_url=SecretStr(world.server.url(world.name, "owner")))
    environment = make_environment(settings, SentMessages(), Objects(BUCKET), Secrets())
    monkeypatch.setattr(capacity_probe.handler, "load_environment", lambda: environment)

    feed("capacity_probe.pulse")
    environment.database.close()

    assert world.look_up("SELECT count(*) FROM scheduler.capacity_probe_receipt") == 1


def test_pulse_of_the_doctor_tells_how_many_checks_are_unhealthy(
    world: FreshDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    world.look("DELETE FROM scheduler.capacity_probe_receipt")

    answer = feed("api.doctor_pulse")

    assert answer["checks"] >= 6
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"UnhealthyChecks"' in line]
    assert [blob["UnhealthyChecks"] for blob in told] == [[answer["unhealthy"]]]
    assert answer["unhealthy"] >= 1, "no probe has measured anything"


def test_every_input_of_a_schedule_is_a_sample() -> None:
    template = (PROJECT_FOLDER / "template.yaml").read_text()
    samples = [json.loads(path.read_text()) for path in EVENTS.glob("*.json")]

    for text in re.findall(r"Input: '(.*)'", template):
        assert json.loads(text) in samples


def test_sweep_of_idempotency_records_leaves_those_that_live(world: FreshDatabase, run_id: str) -> None:
    feed("retention_sweep.idempotency")
    assert world.look_up("SELECT count(*) FROM coordination.idempotency_records") == 1

    world.look("UPDATE coordination.idempotency_records SET expires_at = clock_timestamp()")
    feed("retention_sweep.idempotency")

    assert world.look_up("SELECT count(*) FROM coordination.idempotency_records") == 0


def test_source_that_is_due_is_sent_and_what_does_not_exist_is_acknowledged(
    world: FreshDatabase, sent: SentMessages
) -> None:
    world.look(
        "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id)"
        " VALUES ('pull', 'demo', 'source_tick', 'nightly')"
    )

    assert [feed("scheduled_pull.pulse") for _ in range(2)] == [{"sent": 1}, {"sent": 0}]

    message = {"kind": "source_tick", "project": "demo", "ref_id": "nightly"}
    assert [body for _, body in sent.messages] == [message]
    for case in ("source_tick_message", "snapshot_removal_message"):
        assert feed(f"scheduled_pull.{case}") == NO_FAILURES
    assert len(feed("scheduled_pull.unknown_message")["batchItemFailures"]) == 1
    assert world.look_up("SELECT count(*) FROM coordination.wake_ups") == 0


def test_unknown_sweep_is_an_error(world: FreshDatabase) -> None:
    with pytest.raises(retention_sweep.handler.UnknownSweepError):
        feed("retention_sweep.unknown")


class CloudFormation(HTTPServer):
    """Takes the answers that CloudFormation would take."""

    def __init__(self) -> None:
        self.answers: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _AnswerHandler)


class _AnswerHandler(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        assert isinstance(self.server, CloudFormation)
        self.server.answers.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_request(self, code: Any = "-", size: Any = "-") -> None: ...


@pytest.fixture
def cloudformation() -> Generator[CloudFormation]:
    server = CloudFormation()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_deploy_hook_migrates_on_create_and_update_and_touches_nothing_on_delete(
    template: FreshDatabase,
    make_database: Callable[[], str],
    cloudformation: CloudFormation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dbname, login = make_database(), template.server.superuser
    names = MigrationSettings(
        admin_secret_arn="admin", owner_secret_arn="owner", app_secret_arn="app", admin_key_secret_arn="admin-key"
    )
    monkeypatch.setattr(schema_migration.handler, "load_migration_settings", lambda: names)
    url = (
        "https://cloudformation-custom-resource-response-eucentral1.s3.eu-central-1.amazonaws.com",
        f"http://127.0.0.1:{cloudformation.server_port}",
    )
    with mock_aws():
        client = boto3.client("secretsmanager")
        for name, user in (("admin", "postgres"), ("owner", "evalward_owner"), ("app", "evalward_app")):
            password = login.password if name == "admin" else f"password of {name}"
            secret = {"host": login.host, "port": login.port, "dbname": dbname, "username": user, "password": password}
            client.create_secret(Name=name, SecretString=json.dumps(secret))
        client.create_secret(Name="admin-key", SecretString="{}")

        for kind in ("create", "update", "delete"):
            feed(f"schema_migration.{kind}", url)
        first_key = json.loads(client.get_secret_value(SecretId="admin-key")["SecretString"])["key"]

    created, updated, deleted = cloudformation.answers
    assert [answer["Status"] for answer in cloudformation.answers] == ["SUCCESS"] * 3
    assert {answer["PhysicalResourceId"] for answer in cloudformation.answers} == {"evalward-database"}
    assert created["Data"]["first_key"] is True
    assert created["Data"]["applied"][0] == 1
    assert updated["Data"] == {"applied": [], "first_key": False}
    assert deleted["Data"] == {}
    assert parse_token(first_key) is not None


def test_every_sample_is_fed_by_a_test() -> None:
    source = (PROJECT_FOLDER / "tests" / "contract" / "test_events.py").read_text()
    samples = {path.stem for path in EVENTS.glob("*.json")}

    unused = {name for name in samples if f'"{name}"' not in source and f'"{name.partition(".")[2]}"' not in source}

    assert unused == set()
    assert {name.partition(".")[0] for name in samples} == set(HANDLERS)
