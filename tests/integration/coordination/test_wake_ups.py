from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from coordination.database import Database
from coordination.leases import take_lease
from coordination.queries import load_queries
from coordination.wake_ups import WakeUp

if TYPE_CHECKING:
    from conftest import FreshDatabase
    from integration.conftest import RecordedQueues

QUERIES = load_queries("wake_ups")
WORK = WakeUp("evaluation", "run", "demo", "7")
BATCH = {"batch_size": 10, "resend_after_seconds": 300}


def write(app: Database, *wake_ups: WakeUp) -> None:
    with app.transaction("demo") as transaction:
        for wake_up in wake_ups:
            transaction.wake(wake_up)


def claim(app: Database, **changes: int) -> list[str]:
    return [row["ref_id"] for row in app.fetch_all(QUERIES["claim_due_wake_ups"], BATCH | changes)]


def rows(database: FreshDatabase) -> list[dict[str, Any]]:
    return database.look(
        "SELECT queue, kind, project, ref_id, attempts, sent_at IS NOT NULL AS is_sent,"
        " due_at <= clock_timestamp() AS is_due FROM coordination.wake_ups ORDER BY ref_id"
    )


def age(database: FreshDatabase, interval: str) -> None:
    """Let time go by: what is in the rows moves into the past."""
    database.look(
        "UPDATE coordination.wake_ups SET due_at = due_at - %(by)s::interval, sent_at = sent_at - %(by)s::interval",
        {"by": interval},
    )
    database.look("UPDATE coordination.leases SET expires_at = expires_at - %(by)s::interval", {"by": interval})


def test_wake_up_without_delay_counts_as_sent_at_once(app: Database, database: FreshDatabase) -> None:
    write(app, WORK)
    (row,) = rows(database)
    assert (row["is_sent"], row["is_due"], row["attempts"]) == (True, True, 0)
    assert claim(app) == []


def test_second_wake_up_for_the_same_work_adds_no_row(app: Database, database: FreshDatabase) -> None:
    write(app, WORK, WORK)
    write(app, WORK)
    assert len(rows(database)) == 1


def test_delayed_wake_up_is_claimed_when_it_is_due_and_not_before(app: Database, database: FreshDatabase) -> None:
    write(app, WakeUp("evaluation", "run", "demo", "7", delay_seconds=60))
    assert claim(app) == []
    age(database, "59 s")
    assert claim(app) == []
    age(database, "2 s")
    assert claim(app) == ["7"]
    assert claim(app) == []


def test_wake_up_that_could_not_be_sent_is_claimed_at_once(app: Database) -> None:
    write(app, WORK)
    app.fetch_all(QUERIES["unsend_wake_up"], WORK.row_key)
    assert claim(app) == ["7"]


def test_sent_wake_up_that_nobody_worked_on_is_sent_again_after_the_resend_time(
    app: Database, database: FreshDatabase
) -> None:
    write(app, WORK)
    age(database, "299 s")
    assert claim(app) == []
    age(database, "2 s")
    assert claim(app) == ["7"]
    assert claim(app) == []


def test_wake_up_under_a_live_lease_is_left_alone_however_old_it_is(app: Database, database: FreshDatabase) -> None:
    write(app, WORK)
    age(database, "1 hour")
    take_lease(app, WORK.lease_name, 60)
    assert claim(app) == []


def test_wake_up_whose_worker_died_is_claimed_as_soon_as_the_lease_has_expired(
    app: Database, database: FreshDatabase
) -> None:
    write(app, WORK)
    take_lease(app, WORK.lease_name, 60)
    age(database, "59 s")
    assert claim(app) == []
    age(database, "2 s")
    assert claim(app) == ["7"]
    # It was sent after the lease had expired: not again before the resend time.
    assert claim(app) == []


def test_claiming_counts_the_sending_in_the_row(app: Database, database: FreshDatabase) -> None:
    write(app, WORK)
    for _ in range(3):
        age(database, "301 s")
        claim(app)
    assert rows(database)[0]["attempts"] == 3


def test_batch_takes_the_longest_due_first_and_no_more_than_its_size(app: Database, database: FreshDatabase) -> None:
    for ref_id in ("a", "b", "c"):
        write(app, WakeUp("evaluation", "run", "demo", ref_id, delay_seconds=1))
        age(database, "10 s")
    assert sorted(claim(app, batch_size=2)) == ["a", "b"]
    assert claim(app, batch_size=2) == ["c"]


def test_two_pulses_at_once_do_not_send_the_same_wake_up(app: Database, database: FreshDatabase) -> None:
    write(app, WORK, WakeUp("evaluation", "run", "demo", "8"))
    age(database, "301 s")
    with database.connect("app") as first, first.transaction():
        held = first.execute(QUERIES["claim_due_wake_ups"], BATCH | {"batch_size": 1}).fetchall()
        others = claim(app)
    assert sorted([*(row["ref_id"] for row in held), *others]) == ["7", "8"]
    assert len(others) == 1


@pytest.mark.parametrize(("project", "kind", "ref_id"), [("other", "run", "7"), ("demo", "shard", "7")])
def test_wake_ups_of_other_projects_and_kinds_are_other_work(
    app: Database, database: FreshDatabase, project: str, kind: str, ref_id: str
) -> None:
    other = WakeUp("evaluation", kind, project, ref_id)
    write(app, WORK, other)
    app.fetch_all(QUERIES["delete_wake_up"], WORK.row_key)
    assert [(row["project"], row["kind"]) for row in rows(database)] == [(project, kind)]


def test_delayed_again_work_is_due_later_and_unsent(app: Database, database: FreshDatabase) -> None:
    write(app, WORK)
    app.fetch_all(QUERIES["delay_wake_up"], WORK.row_key | {"delay_seconds": 30})
    (row,) = rows(database)
    assert (row["is_sent"], row["is_due"]) == (False, False)


def test_lease_name_of_a_wake_up_is_the_one_the_pulse_looks_for(app: Database) -> None:
    joined = app.fetch_one(
        "SELECT %(kind)s::text || ':' || %(project)s::text || ':' || %(ref_id)s::text AS name", WORK.row_key
    )
    assert joined == {"name": WORK.lease_name}


def test_punctual_wake_up_counts_as_sent_when_it_is_due(app: Database, database: FreshDatabase) -> None:
    write(app, WakeUp("delivery", "webhook", "demo", "7", delay_seconds=30, is_punctual=True))
    (row,) = rows(database)
    assert (row["is_sent"], row["is_due"]) == (True, False)
    # The pulse has nothing to add when it is due, and sends it again when nobody has worked on it for long.
    age(database, "31 s")
    assert claim(app) == []
    age(database, "300 s")
    assert claim(app) == ["7"]


def test_statement_that_wakes_several_has_its_messages_sent_after_the_commit(
    app: Database, queues: RecordedQueues
) -> None:
    statement = (
        "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, sent_at)"
        " SELECT 'delivery', 'demo', 'webhook', n::text, clock_timestamp()"
        " FROM generate_series(1, %(count)s::integer) AS n RETURNING queue, kind, project, ref_id"
    )
    with app.transaction("demo") as transaction:
        transaction.wake_all(statement, {"count": 2})
        transaction.wake_all(statement, {"count": 0})
        transaction.wake(WORK)
        transaction.fetch_one("SELECT 1 AS one")
        assert queues.sent == []
    messages = [message for _, message in queues.sent]
    assert sorted(message["ref_id"] for message in messages) == ["1", "2", "7"]
    assert claim(app) == []


@pytest.mark.parametrize(("name", "params"), [("claim_due_wake_ups", BATCH), ("measure_backlog", {"limit": 1000})])
def test_work_that_is_not_due_yet_costs_one_look_at_an_index(
    database: FreshDatabase, name: str, params: dict[str, int]
) -> None:
    database.look(
        "INSERT INTO coordination.wake_ups (queue, project, kind, ref_id, due_at)"
        " SELECT 'evaluation', 'demo', 'run', n::text, clock_timestamp() + interval '1 hour'"
        " FROM generate_series(1, 10000) AS n"
    )
    database.look("ANALYZE coordination.wake_ups")
    with database.connect("app") as connection:
        rows = connection.execute(cast("Any", f"EXPLAIN {QUERIES[name].as_string()}"), params).fetchall()
    plan = "\n".join(row["QUERY PLAN"] for row in rows)
    assert "Index Cond: (due_at <= statement_timestamp())" in plan, plan
    assert "Seq Scan on wake_ups" not in plan, plan
