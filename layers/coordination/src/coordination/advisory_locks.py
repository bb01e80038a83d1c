"""Advisory locks: short accounting, serialized for the rest of a transaction. docs/locks.md lists the namespaces.

Transaction level only, 64-bit ids from SHA-256 over namespace and name; the functions are in the database, so no lock
function stands in a statement's text. They are never held across a download, a conversion or a remote call.
"""

from coordination.database import Transaction
from coordination.queries import load_queries


def take_lock(transaction: Transaction, namespace: str, name: str) -> None:
    """Wait for a lock, at most the transaction's lock time-out, and hold it until the transaction ends.

    Sent with the next statement whose rows are read; what is read after it sees what the holder before committed.
    """
    transaction.submit(load_queries("locks")["take_advisory_lock"], {"namespace": namespace, "name": name})
