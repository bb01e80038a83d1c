"""Leases: who works on what, until when.

A lease is a row naming an owner, an epoch and an expiry. It is taken and renewed by one conditional statement on the
database's clock. The epoch only grows and survives a release, so a holder that was paused past its expiry and comes
back can never be mistaken for its successor: every guarded write joins owner, epoch and expiry and a stale holder
changes no row.

Work that is longer than a transaction takes a lease; short accounting takes an advisory lock (docs/locks.md). An error
while renewing means: stop before the last confirmed expiry.
"""

import uuid
from dataclasses import dataclass

from coordination.database import Database, Transaction
from coordination.queries import load_queries

_QUERIES = load_queries("leases")


class LeaseLostError(Exception):
    """The lease has expired or someone else holds it: stop, write nothing more."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease that this invocation holds.

    Attributes
    ----------
    name
        What it covers.
    owner
        Random per taking.
    epoch
        Grows with every taking of this name.
    """

    name: str
    owner: uuid.UUID
    epoch: int


def take_lease(database: Database | Transaction, name: str, seconds: int) -> Lease | None:
    """Take a lease that is free or expired, in one statement of its own or in a transaction that uses it at once.

    Returns
    -------
    Lease or None
        None while someone else holds it.
    """
    owner = uuid.uuid4()
    row = database.fetch_one(_QUERIES["take_lease"], {"name": name, "owner": owner, "seconds": seconds})
    return Lease(name, owner, row["epoch"]) if row else None


def renew_lease(database: Database, lease: Lease, seconds: int) -> None:
    """Extend a lease that is still ours to `seconds` from now.

    Raises
    ------
    LeaseLostError
        It expired or was taken over.
    """
    params = {"name": lease.name, "owner": lease.owner, "epoch": lease.epoch, "seconds": seconds}
    if database.fetch_one(_QUERIES["renew_lease"], params) is None:
        raise LeaseLostError(lease.name)


def require_lease(transaction: Transaction, lease: Lease) -> None:
    """Lock the lease's row until the transaction ends and make sure that it is still ours.

    Raises
    ------
    LeaseLostError
        It expired or was taken over.
    """
    params = {"name": lease.name, "owner": lease.owner, "epoch": lease.epoch}
    if transaction.fetch_one(_QUERIES["lock_lease"], params) is None:
        raise LeaseLostError(lease.name)


def release_lease(transaction: Transaction, lease: Lease) -> None:
    """Give a lease back in the transaction that ends the work. The epoch stays."""
    transaction.submit(_QUERIES["release_lease"], {"name": lease.name, "owner": lease.owner, "epoch": lease.epoch})


def end_lease(transaction: Transaction, lease: Lease) -> None:
    """Delete a lease in the transaction that ends the work for good, so that no row is left for every piece of work.

    Should the work begin anew, its lease has the epoch 1 again; the random owner still tells the holders apart.
    """
    transaction.submit(_QUERIES["delete_lease"], {"name": lease.name, "owner": lease.owner, "epoch": lease.epoch})


def drop_lease(database: Database, lease: Lease) -> None:
    """Give a lease back in a statement of its own, when the work ended without one. The epoch stays."""
    database.fetch_all(_QUERIES["release_lease"], {"name": lease.name, "owner": lease.owner, "epoch": lease.epoch})
