from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from coordination.database import Database
from coordination.environment import Environment
from coordination.leases import (
    Lease,
    LeaseLostError,
    drop_lease,
    release_lease,
    renew_lease,
    require_lease,
    take_lease,
)

if TYPE_CHECKING:
    from conftest import FreshDatabase


@pytest.fixture
def other(make_environments: Callable[..., Environment]) -> Database:
    """Return the database as another environment has it."""
    return make_environments().database


def taken(database: Database, seconds: int = 60) -> Lease:
    lease = take_lease(database, "import:demo:1", seconds)
    assert lease is not None
    return lease


def let_it_expire(database: FreshDatabase) -> None:
    database.look("UPDATE coordination.leases SET expires_at = clock_timestamp() - interval '1 millisecond'")


def test_free_lease_is_taken_with_epoch_1(app: Database) -> None:
    assert taken(app).epoch == 1


def test_live_lease_is_not_taken_by_anyone(app: Database, other: Database) -> None:
    taken(app)
    assert take_lease(other, "import:demo:1", 60) is None
    assert take_lease(app, "import:demo:1", 60) is None


def test_leases_of_other_names_are_free(app: Database, other: Database) -> None:
    taken(app)
    assert take_lease(other, "import:demo:2", 60) is not None


def test_expired_lease_is_taken_over_with_a_higher_epoch(
    app: Database, other: Database, database: FreshDatabase
) -> None:
    first = taken(app)
    let_it_expire(database)
    second = taken(other)
    assert second.epoch == first.epoch + 1
    assert second.owner != first.owner


def test_epoch_survives_a_release_and_only_grows(app: Database) -> None:
    epochs: list[int] = []
    for _ in range(3):
        lease = taken(app)
        epochs.append(lease.epoch)
        drop_lease(app, lease)
    assert epochs == [1, 2, 3]


def test_renewal_counts_from_now_on_the_databases_clock(app: Database, database: FreshDatabase) -> None:
    lease = taken(app, 60)
    renew_lease(app, lease, 3600)
    left = "SELECT expires_at - clock_timestamp() BETWEEN '59 minutes' AND '60 minutes' FROM coordination.leases"
    assert database.look_up(left) is True
    renew_lease(app, lease, 30)
    assert database.look_up("SELECT expires_at < clock_timestamp() + interval '31 s' FROM coordination.leases") is True


def test_expired_lease_cannot_be_renewed_even_when_nobody_took_it(app: Database, database: FreshDatabase) -> None:
    lease = taken(app)
    let_it_expire(database)
    with pytest.raises(LeaseLostError):
        renew_lease(app, lease, 60)


def test_paused_holder_renews_releases_and_guards_nothing_after_a_takeover(
    app: Database, other: Database, database: FreshDatabase
) -> None:
    stale = taken(app)
    let_it_expire(database)
    current = taken(other)
    with pytest.raises(LeaseLostError):
        renew_lease(app, stale, 60)
    with app.transaction("demo") as transaction:
        release_lease(transaction, stale)
    drop_lease(app, stale)
    with app.transaction("demo") as transaction, pytest.raises(LeaseLostError):
        require_lease(transaction, stale)
    with other.transaction("demo") as transaction:
        require_lease(transaction, current)


def test_required_lease_is_kept_until_the_transaction_ends(
    app: Database, other: Database, database: FreshDatabase
) -> None:
    lease = taken(app)
    with app.transaction("demo") as transaction:
        require_lease(transaction, lease)
        with database.connect("app") as connection:
            held = connection.execute("SELECT name FROM coordination.leases FOR UPDATE SKIP LOCKED").fetchall()
        release_lease(transaction, lease)
    assert held == []
    assert taken(other).epoch == lease.epoch + 1


def test_lease_released_in_a_transaction_that_rolls_back_is_still_held(app: Database, other: Database) -> None:
    lease = taken(app)
    with app.transaction("demo") as transaction:
        release_lease(transaction, lease)
        transaction.connection.execute("ROLLBACK AND CHAIN")
    assert take_lease(other, "import:demo:1", 60) is None
