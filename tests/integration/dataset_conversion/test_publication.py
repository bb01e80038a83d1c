"""Publication against time: slots, crashes, removals in between, promises of capacity.

Time is moved in the database; nobody sleeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from threading import Barrier
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from api.datasets.delete_dataset import delete_dataset
from coordination.access import Principal
from coordination.clock import Deadline
from coordination.datasets import Dataset, find_dataset_by_name, remove_unreferenced
from coordination.environment import Environment
from coordination.errors import (
    ContentBeingRemovedError,
    ConversionBusyError,
    DatasetQuotaExceededError,
    DatasetRefusedError,
    ProblemError,
    UploadBusyError,
    UploadEndedError,
    UploadMismatchError,
    UploadMissingError,
)
from coordination.imports import ImportOrder, insert_import
from coordination.leases import LeaseLostError, take_lease
from coordination.uploads import staging_key
from dataset_conversion import finalize_upload, work_import
from dataset_conversion.conversion_slots import take_slot
from dataset_conversion.finalize_upload import check_upload, prepare_upload, publish_reserved
from dataset_conversion.publication import StoredFile
from dataset_conversion.record_incoming import record_incoming
from dataset_conversion.remove_object import remove_object
from dataset_conversion.reserve_upload import Reservation, ReserveUpload, reserve_upload
from dataset_conversion.upload_dataset import UploadQuery, convert_upload, publish_upload
from retention_sweep import collect_orphans as orphans
from retention_sweep.collect_orphans import collect_orphans
from retention_sweep.recover_uploads import recover_uploads

if TYPE_CHECKING:
    from conftest import FreshDatabase

BUCKET = "evalward-test"
SOMEBODY = Principal("key:1", "test", [])
GOOD = b'{"id":"1","input":"a"}\n'
BAD = b'{"id":"1","input":"a"}\n{"id":"1","input":"b"}\n'
BLOCKED = "SELECT 1 AS waits FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"


class KilledError(BaseException):
    """Stands for the end of the process: nothing that handles errors handles this one."""


class LongContext:
    def get_remaining_time_in_millis(self) -> int:
        return 120_000


def a_while() -> Deadline:
    return Deadline.of_invocation(LongContext())  # pyright: ignore[reportArgumentType]


@dataclass
class Project:
    """The project `demo`, as its functions see it."""

    environment: Environment
    database: FreshDatabase
    put: Callable[[str, bytes], None]
    make_environments: Callable[..., Environment]

    def convert(self, content: bytes, name: str = "answers") -> tuple[UploadQuery, StoredFile]:
        query = UploadQuery(name=name, format="jsonl")
        return query, convert_upload(self.environment, "demo", query, content)

    def publish(self, query: UploadQuery, stored: StoredFile) -> tuple[Dataset, bool]:
        with self.environment.database.transaction("demo") as transaction:
            return publish_upload(transaction, query, stored, SOMEBODY)

    def upload(self, content: bytes, name: str = "answers") -> Dataset:
        return self.publish(*self.convert(content, name))[0]

    def delete(self, sha256: str) -> Any:
        with self.environment.database.transaction("demo") as transaction:
            return delete_dataset(transaction, sha256, SOMEBODY)

    def remove(self, sha256: str, environment: Environment | None = None) -> None:
        remove_object(environment or self.environment, "demo", sha256)

    def reserve(
        self, content: bytes = GOOD, *, size: int | None = None, environment: Environment | None = None, **wanted: Any
    ) -> Reservation:
        environment = environment or self.environment
        given: dict[str, Any] = {
            "name": "answers",
            "format": "jsonl",
            "bytes": size or len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        with environment.database.transaction("demo") as transaction:
            return reserve_upload(transaction, environment.objects, ReserveUpload(**(given | wanted)), SOMEBODY)

    def stage(self, reservation: Reservation, content: bytes) -> str:
        self.put(staging_key("demo", reservation.id), content)
        return str(reservation.id)

    def finalize(self, upload: str, environment: Environment | None = None) -> tuple[Dataset, bool]:
        environment = environment or self.environment
        prepared = prepare_upload(environment, "demo", upload)
        with environment.database.transaction("demo") as transaction:
            return publish_reserved(transaction, prepared, SOMEBODY)

    def order(self, file: str = "answers.jsonl", **changes: Any) -> str:
        """Order an import and return its id."""
        key = f"datasets/incoming/demo/{file}"
        given: dict[str, Any] = {"bucket": BUCKET, "key": key, "name": "answers", "format": "jsonl"} | changes
        with self.environment.database.transaction("demo") as transaction:
            ordered = insert_import(
                transaction,
                order=ImportOrder(**given),
                dedupe_key=f"request {file}",
                principal="test",
                cause=("route", "datasets.import"),
            )
        assert ordered is not None
        return str(ordered.id)

    def tell(self, file: str, *, event: str = "ObjectCreated:Put", **members: Any) -> list[str]:
        """Deliver an event of S3; return the imports there are, oldest first."""
        told = {"key": f"datasets/incoming/demo/{file}"} | members
        record: dict[str, Any] = {"eventName": event, "s3": {"bucket": {"name": BUCKET}, "object": told}}
        record["eventTime"] = members.get("at", "2026-01-01T00:00:00.000Z")
        record_incoming(self.environment, [record])
        return [str(job["id"]) for job in self.look("SELECT id FROM scheduler.jobs ORDER BY created_at, id")]

    def work(self, import_id: str) -> dict[str, Any]:
        work_import.work_import(self.environment, "demo", import_id)
        return self.job(import_id)

    def job(self, import_id: str) -> dict[str, Any]:
        (job,) = self.look("SELECT * FROM scheduler.jobs WHERE id = %(id)s::uuid", id=import_id)
        return job

    def look(self, statement: str, **params: Any) -> list[dict[str, Any]]:
        return [dict(row) for row in self.database.look(statement, params)]

    def versions(self) -> list[tuple[str, int]]:
        return [
            (row["name"], row["version"]) for row in self.look("SELECT name, version FROM packs.packs ORDER BY 1, 2")
        ]

    def state_of(self, upload: str) -> str:
        (row,) = self.look("SELECT state FROM packs.upload_reservations WHERE id = %(id)s::uuid", id=upload)
        return row["state"]

    def wake_ups(self) -> list[str]:
        return [row["kind"] for row in self.look("SELECT kind FROM coordination.wake_ups WHERE queue = 'conversion'")]

    def expire_leases(self) -> None:
        self.look("UPDATE coordination.leases SET expires_at = clock_timestamp() WHERE expires_at IS NOT NULL")

    def live_leases(self) -> list[str]:
        return [row["name"] for row in self.look("SELECT name FROM coordination.leases WHERE expires_at IS NOT NULL")]

    def move_reservations(self, interval: str) -> None:
        self.look("UPDATE packs.upload_reservations SET expires_at = expires_at - %(by)s::interval", by=interval)

    def objects(self) -> set[str]:
        listing: Any = boto3.client("s3").list_objects_v2(Bucket=BUCKET, Prefix="datasets/demo/")
        return {entry["Key"].rpartition("/")[2] for entry in listing.get("Contents", [])}

    def wait_until_blocked(self) -> None:
        for _ in range(100_000):
            if self.database.look(BLOCKED):
                return
        raise AssertionError("nobody waits")


@pytest.fixture
def project(
    environment: Environment,
    database: FreshDatabase,
    bucket: Callable[[str, bytes], None],
    make_project: Callable[..., str],
    make_environments: Callable[..., Environment],
    monkeypatch: pytest.MonkeyPatch,
) -> Project:
    make_project()
    monkeypatch.setattr(finalize_upload, "_SLOT_WAIT_SECONDS", 0.0)
    return Project(environment, database, bucket, make_environments)


def files_of(content: bytes) -> set[str]:
    sha256 = hashlib.sha256(content).hexdigest()
    return {f"{sha256}.jsonl", f"{sha256}.manifest.json"}


# --- two conversions at a time
def test_a_third_conversion_waits(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD)
    project.put("datasets/incoming/demo/answers.jsonl", GOOD)
    ordered = project.order()
    assert take_slot(project.environment.database)
    assert take_slot(project.environment.database)

    with pytest.raises(ConversionBusyError) as refusal:
        project.finalize(upload)
    job = project.work(ordered)

    assert refusal.value.retry_after_seconds
    assert (project.state_of(upload), job["state"], job["attempts"]) == ("open", "queued", 0)
    (waiting,) = project.look(
        "SELECT sent_at, due_at > clock_timestamp() AS is_later FROM coordination.wake_ups WHERE kind = 'import'"
    )
    assert waiting == {"sent_at": None, "is_later": True}
    assert sorted(project.live_leases()) == ["conversion-slot:1", "conversion-slot:2"]
    # Both converters were killed: their slots are free when their time is over.
    project.expire_leases()
    assert project.work(ordered)["state"] == "succeeded"
    assert project.finalize(upload)[1] is False


def test_nobody_waits_in_a_slot_for_bytes_that_are_not_there(project: Project) -> None:
    upload = str(project.reserve().id)
    assert take_slot(project.environment.database)
    assert take_slot(project.environment.database)
    with pytest.raises(UploadMissingError):
        project.finalize(upload)
    assert project.state_of(upload) == "open"


# --- crashes
def test_a_conversion_that_was_killed_is_done_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.put("datasets/incoming/demo/answers.jsonl", GOOD)
    upload = project.stage(project.reserve(), GOOD)
    ordered = project.order()

    def die(*_: Any, **__: Any) -> None:
        raise KilledError

    def keep(*_: Any) -> None:
        return

    with monkeypatch.context() as patch:
        # After the object, before the row; and, unlike an exception, without giving anything back.
        patch.setattr(work_import, "publish_dataset", die)
        patch.setattr(work_import, "drop_lease", keep)
        with pytest.raises(KilledError):
            project.work(ordered)
    assert project.objects() == files_of(GOOD)
    assert (project.versions(), project.job(ordered)["state"]) == ([], "running")
    assert project.work(ordered)["attempts"] == 1, "somebody has its lease"
    project.expire_leases()
    assert (project.work(ordered)["state"], project.job(ordered)["attempts"]) == ("succeeded", 2)

    prepared = prepare_upload(project.environment, "demo", upload)
    assert prepared.lease is not None
    with pytest.raises(UploadBusyError):
        project.finalize(upload)
    project.expire_leases()
    assert project.finalize(upload)[0].version == 1
    assert project.versions() == [("answers", 1)]
    assert project.live_leases() == []


def test_an_object_without_a_row_is_collected(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = project.upload(GOOD)
    project.convert(b'{"id":"2","input":"orphan"}\n')
    assert len(project.objects()) == 4
    assert collect_orphans(project.environment, a_while())["orphans"] == 0, "it may still get its row"

    monkeypatch.setattr(orphans, "_AGE", timedelta(hours=-1))
    assert collect_orphans(project.environment, a_while())["orphans"] == 1
    (waiting,) = project.look("SELECT ref_id FROM coordination.wake_ups WHERE kind = 'object_removal'")
    project.remove(waiting["ref_id"])

    assert project.objects() == files_of(GOOD)
    assert find_version(project, kept) == kept
    assert project.wake_ups() == []


def find_version(project: Project, dataset: Dataset) -> Dataset | None:
    with project.environment.database.transaction("demo") as transaction:
        return find_dataset_by_name(transaction, dataset.name, dataset.version)


# --- removal and publication of the same content
def test_a_deleted_dataset_takes_its_objects_along(project: Project) -> None:
    sha256 = project.upload(GOOD).sha256
    assert project.delete(sha256).object == "removed"
    assert project.wake_ups() == ["object_removal"]
    project.remove(sha256)
    assert (project.objects(), project.wake_ups(), project.live_leases()) == (set(), [], [])
    assert project.upload(GOOD).version == 1
    assert project.objects() == files_of(GOOD)


def test_a_content_removed_since_its_object_was_put_is_not_published(project: Project) -> None:
    sha256 = project.upload(GOOD).sha256
    query, stored = project.convert(GOOD)
    project.delete(sha256)
    project.remove(sha256)

    with pytest.raises(ContentBeingRemovedError):
        project.publish(query, stored)

    assert (project.versions(), project.objects()) == ([], set())
    assert project.upload(GOOD).version == 1
    assert project.objects() == files_of(GOOD)


def test_nothing_is_put_while_the_content_is_being_removed(project: Project) -> None:
    sha256 = project.upload(GOOD).sha256
    project.delete(sha256)
    with project.environment.database.transaction("demo") as transaction:
        assert remove_unreferenced(transaction, sha256)
    with pytest.raises(ContentBeingRemovedError):
        project.convert(GOOD)
    project.remove(sha256)
    assert project.upload(GOOD).version == 1


def test_a_removal_waits_for_a_publication_and_then_leaves_it_alone(project: Project) -> None:
    query, stored = project.convert(GOOD)
    other = project.make_environments()
    with ThreadPoolExecutor(1) as threads:
        with project.environment.database.transaction("demo") as transaction:
            publish_upload(transaction, query, stored, SOMEBODY)
            transaction.fetch_one("SELECT 1 AS sent")
            removal = threads.submit(project.remove, stored.conversion.sha256, other)
            project.wait_until_blocked()
        removal.result(30)
    assert project.objects() == files_of(GOOD)
    assert project.versions() == [("answers", 1)]


def test_a_publication_waits_for_a_removal_and_then_sees_it(project: Project) -> None:
    query, stored = project.convert(GOOD)
    other = project.make_environments()

    def publish() -> None:
        with other.database.transaction("demo") as transaction:
            publish_upload(transaction, query, stored, SOMEBODY)

    with ThreadPoolExecutor(1) as threads:
        with project.environment.database.transaction("demo") as transaction:
            assert remove_unreferenced(transaction, stored.conversion.sha256)
            publication = threads.submit(publish)
            project.wait_until_blocked()
        with pytest.raises(ContentBeingRemovedError):
            publication.result(30)
    assert project.versions() == []


def test_one_removal_at_a_time_and_a_late_one_cannot_end_another(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = project.upload(GOOD).sha256
    project.delete(sha256)
    other = project.make_environments()
    inside: list[set[str]] = []
    delete = project.environment.objects.delete

    def delete_slowly(keys: Any) -> None:
        project.remove(sha256, other)
        inside.append(project.objects())
        # Now its time is over, and somebody else takes over in the middle of its work.
        project.expire_leases()
        assert take_lease(other.database, f"object_removal:demo:{sha256}", 130)
        delete(keys)

    monkeypatch.setattr(project.environment.objects, "delete", delete_slowly)
    with pytest.raises(LeaseLostError):
        project.remove(sha256)

    assert inside == [files_of(GOOD)], "the second one went away while the first was at it"
    (removal,) = project.look("SELECT is_removing FROM packs.object_removals")
    assert removal["is_removing"] is True
    project.expire_leases()
    project.remove(sha256, other)
    assert project.look("SELECT is_removing FROM packs.object_removals") == [{"is_removing": False}]


# --- promises of capacity
def test_reservations_at_the_edge_of_the_quota_admit_exactly_those_that_fit(project: Project) -> None:
    project.look("UPDATE coordination.projects SET max_dataset_bytes = 1000")
    count, fitting = 40, 7
    environments = [project.make_environments() for _ in range(count)]
    start = Barrier(count)

    def reserve(number: int) -> bool:
        environments[number].database.fetch_one("SELECT 1 AS connected")
        start.wait(60)
        with suppress(DatasetQuotaExceededError):
            project.reserve(f"{number}".encode(), size=140, environment=environments[number])
            return True
        return False

    with ThreadPoolExecutor(count) as threads:
        admitted = list(threads.map(reserve, range(count)))
    assert admitted.count(True) == fitting
    (row,) = project.look("SELECT count(*) AS open, sum(bytes)::int AS bytes FROM packs.upload_reservations")
    assert row == {"open": fitting, "bytes": 980}


def test_a_promise_is_kept_when_the_quota_is_full(project: Project) -> None:
    project.look("UPDATE coordination.projects SET max_dataset_bytes = %(bytes)s", bytes=len(GOOD))
    upload = project.stage(project.reserve(), GOOD)
    with pytest.raises(DatasetQuotaExceededError):
        project.upload(b'{"id":"2","input":"b"}\n')
    assert project.finalize(upload)[1] is True
    with pytest.raises(DatasetQuotaExceededError):
        project.reserve()


def test_of_two_finalizations_one_wins_and_both_have_the_dataset_in_the_end(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD)
    other = project.make_environments()
    prepared = prepare_upload(project.environment, "demo", upload)
    with pytest.raises(UploadBusyError) as refusal:
        project.finalize(upload, other)
    assert (refusal.value.status, refusal.value.retry_after_seconds) == (409, 5)
    with project.environment.database.transaction("demo") as transaction:
        dataset, is_new = publish_reserved(transaction, prepared, SOMEBODY)
    assert is_new
    assert project.finalize(upload, other) == (dataset, False)
    assert project.versions() == [("answers", 1)]


def test_a_finalization_that_was_overtaken_changes_nothing(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD)
    other = project.make_environments()
    late = prepare_upload(project.environment, "demo", upload)
    project.expire_leases()
    dataset, _ = project.finalize(upload, other)
    with pytest.raises(UploadBusyError), project.environment.database.transaction("demo") as transaction:
        publish_reserved(transaction, late, SOMEBODY)
    late.abandon()
    assert project.finalize(upload) == (dataset, False)


def test_many_finalizations_at_once_end_in_one_version_and_no_error_of_ours(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD)
    count = 6
    environments = [project.make_environments() for _ in range(count)]
    start = Barrier(count)

    def finalize(environment: Environment) -> ProblemError | Dataset:
        environment.database.fetch_one("SELECT 1 AS connected")
        start.wait(60)
        try:
            return project.finalize(upload, environment)[0]
        except ProblemError as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        outcomes = list(threads.map(finalize, environments))
    assert {one.code for one in outcomes if isinstance(one, ProblemError)} <= {"upload_busy"}
    assert project.versions() == [("answers", 1)]
    assert project.state_of(upload) == "finalized"


def test_a_refused_file_frees_its_capacity_and_is_refused_again_in_the_same_words(project: Project) -> None:
    project.look("UPDATE coordination.projects SET max_dataset_bytes = %(bytes)s", bytes=len(BAD))
    upload = project.stage(project.reserve(BAD), BAD)
    with pytest.raises(DatasetQuotaExceededError):
        project.reserve(BAD)
    with pytest.raises(DatasetRefusedError) as first:
        project.finalize(upload)
    with pytest.raises(DatasetRefusedError) as again:
        project.finalize(upload)
    assert (again.value.detail, again.value.errors) == (first.value.detail, first.value.errors)
    assert first.value.errors[0]["reason"] == "duplicate_id"
    assert project.state_of(upload) == "refused"
    project.reserve(BAD)


def test_a_file_that_was_not_announced_is_refused_and_the_promise_stays(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD.replace(b"a", b"b"))
    with pytest.raises(UploadMismatchError):
        project.finalize(upload)
    assert (project.state_of(upload), project.objects(), project.live_leases()) == ("open", set(), [])


def test_an_upload_is_checked_before_it_is_published(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD)
    name, conversion = check_upload(project.environment, "demo", upload)
    assert (name, conversion.records, conversion.sha256) == ("answers", 1, hashlib.sha256(GOOD).hexdigest())
    assert (project.state_of(upload), project.objects(), project.live_leases()) == ("open", set(), [])
    assert project.finalize(upload)[1] is True
    broken = project.stage(project.reserve(BAD), BAD)
    with pytest.raises(DatasetRefusedError):
        check_upload(project.environment, "demo", broken)
    assert project.state_of(broken) == "open"


def test_a_stale_promise_is_released_when_no_upload_can_finish_any_more(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD)
    for moved, released in (("0 s", 0), ("2 hours", 0), ("22 hours", 0), ("2 hours", 1)):
        project.move_reservations(moved)
        assert recover_uploads(project.environment, a_while()) == {"released": released, "failed": 0}, moved
    with pytest.raises(UploadEndedError):
        project.finalize(upload)
    assert project.state_of(upload) == "released"


def test_a_promise_that_is_being_kept_is_never_released(project: Project) -> None:
    upload = project.stage(project.reserve(), GOOD)
    prepared = prepare_upload(project.environment, "demo", upload)
    project.move_reservations("3 days")
    assert recover_uploads(project.make_environments(), a_while())["released"] == 0
    with project.environment.database.transaction("demo") as transaction:
        assert publish_reserved(transaction, prepared, SOMEBODY)[1] is True
    assert recover_uploads(project.environment, a_while())["released"] == 0
    assert project.state_of(upload) == "finalized"


# --- events
def test_an_event_twice_is_one_import_and_a_later_write_another(project: Project) -> None:
    project.tell("answers.jsonl", sequencer="0055AED6DCD90281E5")
    project.tell("answers.jsonl", sequencer="0055aed6dcd90281e5")
    assert len(project.tell("answers.jsonl", sequencer="0055AED6DCD90281E6")) == 2
    # A store that sends no sequencer sends a time.
    project.tell("other.jsonl", at="2026-01-01T00:00:00.000Z")
    assert len(project.tell("other.jsonl", at="2026-01-01T00:00:01.000Z")) == 4


@pytest.mark.parametrize(
    ("file", "event"),
    [
        ("answers.jsonl", "ObjectRemoved:Delete"),
        ("answers.jsonl", "ObjectRemoved:DeleteMarkerCreated"),
        ("answers.jsonl", "s3:LifecycleExpiration:Delete"),
        ("", "ObjectCreated:Put"),
        ("folder/", "ObjectCreated:Put"),
        ("a%00b.jsonl", "ObjectCreated:Put"),
        ("../other/answers.jsonl/", "ObjectCreated:Put"),
    ],
)
def test_what_is_no_new_file_is_passed_over(project: Project, file: str, event: str) -> None:
    assert project.tell(file, event=event, sequencer="1") == []


@pytest.mark.parametrize("file", ["../other/answers.jsonl", "a%2525.jsonl", "answers%0A.jsonl", ".jsonl", "a.json"])
def test_every_other_file_is_an_import_that_says_why_not(project: Project, file: str) -> None:
    (job,) = map(project.job, project.tell(file, sequencer="1"))
    assert (job["state"], job["error"]["code"]) == ("failed", "import_refused")
    assert project.wake_ups() == []


def test_a_marked_deletion_leaves_what_was_published(project: Project) -> None:
    project.put("datasets/incoming/demo/answers.jsonl", GOOD)
    (ordered,) = project.tell("answers.jsonl", sequencer="1")
    assert project.work(ordered)["state"] == "succeeded"
    project.tell("answers.jsonl", event="ObjectRemoved:DeleteMarkerCreated", sequencer="2")
    assert project.versions() == [("answers", 1)]


def test_versions_are_pinned_and_one_that_comes_late_is_not_published_over_a_later_one(project: Project) -> None:
    client: Any = boto3.client("s3")
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    key = "datasets/incoming/demo/answers.jsonl"
    contents = [b'{"id":"%d","input":"a"}\n' % number for number in range(3)]
    versions = [client.put_object(Bucket=BUCKET, Key=key, Body=content)["VersionId"] for content in contents]
    first, second, third = ("0055AED6DC", "0055AED6DCD9", "0055AED6DD")

    ordered = project.tell("answers.jsonl", sequencer=second, versionId=versions[1])
    ordered = project.tell("answers.jsonl", sequencer=first, versionId=versions[0])
    ordered = project.tell("answers.jsonl", sequencer=third, versionId=versions[2])
    ended = [project.work(one) for one in ordered]

    assert [one["state"] for one in ended] == ["succeeded", "failed", "succeeded"]
    assert "late" in ended[1]["error"]["detail"]
    published = [one["result"]["sha256"] for one in ended if one["result"]]
    assert published == [hashlib.sha256(contents[at]).hexdigest() for at in (1, 2)]


def test_a_version_that_is_gone_is_told_clearly(project: Project) -> None:
    client: Any = boto3.client("s3")
    client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    key = "datasets/incoming/demo/answers.jsonl"
    version = client.put_object(Bucket=BUCKET, Key=key, Body=GOOD)["VersionId"]
    (ordered,) = project.tell("answers.jsonl", sequencer="1", versionId=version)
    client.delete_object(Bucket=BUCKET, Key=key, VersionId=version)
    assert project.work(ordered)["error"]["code"] == "object_not_found"


@pytest.mark.parametrize(("ending", "reason"), [("jsonl", "empty"), ("parquet", "empty")])
def test_a_file_without_a_byte_is_refused(project: Project, ending: str, reason: str) -> None:
    project.put(f"datasets/incoming/demo/answers.{ending}", b"")
    (ordered,) = project.tell(f"answers.{ending}", sequencer="1")
    failed = project.work(ordered)
    assert [error["reason"] for error in failed["error"]["errors"]] == [reason]


def test_an_import_can_only_check(project: Project) -> None:
    project.put("datasets/incoming/demo/answers.jsonl", GOOD)
    ended = project.work(project.order(validate_only=True))
    assert (ended["state"], ended["result"]["records"]) == ("succeeded", 1)
    assert (project.versions(), project.objects(), project.wake_ups()) == ([], set(), [])


def test_a_name_with_a_nul_does_not_keep_an_import_from_ending(project: Project) -> None:
    project.put("datasets/incoming/demo/answers.jsonl", b'{"input":"q","a\\u0000":1}\n')
    ended = project.work(project.order())
    assert [error["field"] for error in ended["error"]["errors"]] == ["/a\ufffd"]


# --- failures
def test_import_that_fails_is_a_failure_until_its_dataset_is_imported(project: Project) -> None:
    failures = "SELECT kind, work, error, state, resolved_by, occurrence_count FROM scheduler.failure_signatures"
    for number in range(2):
        project.put(f"datasets/incoming/demo/{number}.jsonl", b'{"input": "a private text"\n')
        assert project.work(project.order(f"{number}.jsonl"))["state"] == "failed"
    (failure,) = project.look(failures)
    assert (failure["kind"], failure["work"], failure["occurrence_count"]) == ("import", "answers", 2)
    assert failure["error"].startswith("dataset_invalid: ")
    assert "private" not in str(project.look("SELECT * FROM scheduler.failure_signatures"))
    project.put("datasets/incoming/demo/good.jsonl", GOOD)
    assert project.work(project.order("good.jsonl"))["state"] == "succeeded"
    (failure,) = project.look(failures)
    assert (failure["state"], failure["resolved_by"]) == ("resolved", "work")


def test_import_that_is_refused_at_once_is_a_failure_too(project: Project) -> None:
    project.tell("a.json", sequencer="1")
    (failure,) = project.look("SELECT kind, error, state FROM scheduler.failure_signatures")
    assert failure["kind"] == "import"
    assert failure["error"].startswith("import_refused: ")
