"""Conversion slots: of imports and finalized uploads, two are converted at a time in a whole deployment."""

import time

from coordination.database import Database
from coordination.errors import ConversionBusyError
from coordination.leases import Lease, take_lease

# The function's timeout and ten seconds: a slot is free again when nobody can be in it any more.
LEASE_SECONDS = 130
_SLOTS = ("conversion-slot:1", "conversion-slot:2")
_PAUSE_SECONDS = 0.25
_RETRY_SECONDS = 5


def take_slot(database: Database) -> Lease | None:
    """Take a free slot; None when there is none."""
    for name in _SLOTS:
        lease = take_lease(database, name, LEASE_SECONDS)
        if lease is not None:
            return lease
    return None


def wait_for_slot(database: Database, seconds: float) -> Lease:
    """Take a slot, waiting up to `seconds` for one.

    Raises
    ------
    ConversionBusyError
        None became free.
    """
    until = time.monotonic() + seconds
    while True:
        lease = take_slot(database)
        if lease is not None:
            return lease
        if time.monotonic() + _PAUSE_SECONDS > until:
            raise ConversionBusyError(
                "Two files are being converted, as many as may be at a time. Try again.",
                retry_after_seconds=_RETRY_SECONDS,
            )
        time.sleep(_PAUSE_SECONDS)
