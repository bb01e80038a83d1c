"""Prune every idempotency scope, so that one that is never used again does not keep its rows."""

from aws_lambda_powertools import Logger
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.errors import ProblemError
from coordination.queries import load_queries

logger = Logger(child=True)

_QUERIES = load_queries("idempotency")
_PAGE_SIZE = 500
_SPARE_SECONDS = 10.0


def prune_idempotency(environment: Environment, deadline: Deadline) -> dict[str, int]:
    """Delete expired records scope by scope, each in a short transaction under that scope's lock.

    A scope whose lock is not to be had, or that fails otherwise, is logged and left to the next pass.

    Returns
    -------
    dict
        `scopes` looked at, `pruned` records, `failed` scopes.
    """
    counts = {"scopes": 0, "pruned": 0, "failed": 0}
    tenant, principal = None, None
    while deadline.remaining_seconds() > _SPARE_SECONDS:
        page = environment.database.fetch_all(
            _QUERIES["list_scopes"], {"after_tenant": tenant, "after_principal": principal, "limit": _PAGE_SIZE}
        )
        for scope in page:
            if deadline.remaining_seconds() < _SPARE_SECONDS:
                break
            counts["scopes"] += 1
            try:
                counts["pruned"] += _prune_scope(environment, scope["tenant_id"], scope["principal"])
            except ProblemError as error:
                counts["failed"] += 1
                logger.warning("scope not pruned, the next pass will", extra={"code": error.code})
        if len(page) < _PAGE_SIZE:
            break
        tenant, principal = page[-1]["tenant_id"], page[-1]["principal"]
    logger.info("idempotency scopes pruned", extra=counts)
    return counts


def _prune_scope(environment: Environment, tenant: str, principal: str) -> int:
    with environment.database.transaction(tenant) as transaction:
        row = transaction.fetch_one(_QUERIES["prune_scope"], {"tenant": tenant, "principal": principal})
    return row["pruned"] if row else 0
