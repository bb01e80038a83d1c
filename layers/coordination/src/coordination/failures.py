"""Failures of work, grouped: the same kind of thing going wrong at the same work is one row that is counted on.

An error is normalized before it is compared: ids, times, hexadecimal digits, numbers and quoted text are taken out, so
that "row 17" and "row 18" are the same. What is kept passes the redaction patterns first: no secret and no text of a
record stands in a failure. When the same work succeeds later, its open failures are resolved by that.
"""

import functools
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from coordination.database import Transaction
from coordination.queries import load_queries

if TYPE_CHECKING:
    from records.redaction import Redactor

_QUERIES = load_queries("failures")

type FailureKind = Literal["run", "shard", "sink", "import", "webhook", "pull"]
type FailureState = Literal["unresolved", "investigating", "resolved", "wont_fix"]

_MAX_CHARACTERS = 500
_MAX_WORK_CHARACTERS = 300
# Quoted text may be somebody's. An apostrophe in a word begins no quotation.
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|“[^”]*”")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?")
_HEX = re.compile(r"\b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b|\b0x[0-9a-fA-F]+\b")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_BLANKS = re.compile(r"\s+")


def clean_error(error: str) -> str:
    """Return an error as it may be shown: without secrets, quoted text and ids, at most 500 characters."""
    text = _redactor().redact_text(error.replace("\0", ""), Counter())
    text = _UUID.sub("<id>", _QUOTED.sub("<text>", text))
    return _BLANKS.sub(" ", text.encode(errors="replace").decode()).strip()[:_MAX_CHARACTERS]


def normalize_error(error: str) -> str:
    """Return what errors of the same kind have in common; see the module."""
    text = _HEX.sub("<hex>", _TIME.sub("<time>", clean_error(error)))
    return _NUMBER.sub("<n>", text)


def record_failure(transaction: Transaction, kind: FailureKind, work: str, error: str) -> None:
    """Note that work failed, in the transaction that ends or postpones it. No round trip.

    Parameters
    ----------
    transaction
        Of the project. Locks the failure's row until it ends.
    kind
        What failed.
    work
        Which work, so named that the same work has the same name when it is done again: a destination, a webhook, a
        source. Cut at 300 characters.
    error
        What was told; a code and a sentence.
    """
    params = {"tenant": transaction.tenant, "kind": kind, "work": _name(work)}
    transaction.submit(_QUERIES["record_failure"], params | _tell(error))


def record_run_failure(transaction: Transaction, kind: Literal["run", "shard"], run_id: UUID, error: str) -> None:
    """Like `record_failure`, for a run that ends in error: its work is its source, or else its name."""
    params = {"tenant": transaction.tenant, "kind": kind, "run_id": run_id}
    transaction.submit(_QUERIES["record_run_failure"], params | _tell(error))


def resolve_failures(transaction: Transaction, kinds: Sequence[FailureKind], work: str) -> None:
    """Resolve the open failures of work that has succeeded, in the transaction that says so. No round trip.

    What was marked as never to be fixed stays so. Locks the rows.
    """
    params = {"tenant": transaction.tenant, "kinds": list(kinds), "work": _name(work)}
    transaction.submit(_QUERIES["resolve_failures_of_work"], params)


def resolve_run_failures(transaction: Transaction, run_id: UUID) -> None:
    """Like `resolve_failures`, for a run that has got its report."""
    transaction.submit(_QUERIES["resolve_failures_of_run"], {"tenant": transaction.tenant, "run_id": run_id})


def _tell(error: str) -> dict[str, Any]:
    return {"error": normalize_error(error), "sample": clean_error(error)}


def _name(work: str) -> str:
    storable = work.replace("\0", "").encode(errors="replace").decode()
    return storable[:_MAX_WORK_CHARACTERS] or "-"


@functools.cache
def _redactor() -> "Redactor":
    # Failures are rare, and the patterns cost an environment's start more than all else here.
    from records.redaction import RedactionRules, Redactor

    return Redactor(RedactionRules())
