"""Make all checks, when someone asks and when the pulse comes."""

from collections.abc import Callable
from functools import partial

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from coordination.clock import Deadline
from coordination.environment import Environment
from coordination.http.operation import Call
from coordination.jobengine.registry import CAPACITY_CHECK, TERMINAL_BUDGETS_CHECK
from coordination.metrics import emit_metrics

from api.doctor.check_capacity import check_capacity
from api.doctor.check_pipeline import (
    DEAD_LETTERS_CHECK,
    DISPATCH_CHECK,
    IDEMPOTENCY_CHECK,
    SOURCES_CHECK,
    check_dead_letters,
    check_dispatch,
    check_idempotency,
    check_sources,
)
from api.doctor.check_retention import check_retention
from api.doctor.measure_scopes import measure_scopes
from api.doctor.models import Check, Checks

logger = Logger(child=True)


def examine(call: Call) -> Checks:
    """Make all checks for a call; as `make_checks`."""
    return make_checks(call.environment, call.deadline)


def tell_health(environment: Environment, deadline: Deadline) -> dict[str, int]:
    """Make all checks and tell CloudWatch how many are unhealthy: `UnhealthyChecks`, whose silence alarms too.

    Raises
    ------
    DatabaseUnavailableError
        The scopes cannot be measured.
    """
    checks = make_checks(environment, deadline).checks
    unhealthy = [check.id for check in checks if check.status == "unhealthy"]
    if unhealthy:
        logger.warning("checks are unhealthy", extra={"checks": unhealthy})
    emit_metrics(environment.settings, {"UnhealthyChecks": (len(unhealthy), MetricUnit.Count)})
    return {"checks": len(checks), "unhealthy": len(unhealthy)}


def make_checks(environment: Environment, deadline: Deadline) -> Checks:
    """Make all checks; one that cannot be made is unhealthy and keeps no other from being made.

    Read-only, without a transaction around it: each scope has its own.

    Raises
    ------
    DatabaseUnavailableError
        The scopes cannot be measured.
    """
    measures = measure_scopes(environment, deadline)
    made: dict[str, Callable[[], Check]] = {
        TERMINAL_BUDGETS_CHECK: partial(check_retention, environment, measures),
        CAPACITY_CHECK: partial(check_capacity, environment),
        SOURCES_CHECK: partial(check_sources, environment, measures),
        IDEMPOTENCY_CHECK: partial(check_idempotency, environment, measures),
        DISPATCH_CHECK: partial(check_dispatch, environment, measures),
        DEAD_LETTERS_CHECK: partial(check_dead_letters, environment),
    }
    return Checks(checks=[_make(check_id, check) for check_id, check in made.items()])


def _make(check_id: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:
        logger.exception("check not made", extra={"check": check_id})
        return Check(
            id=check_id,
            status="unhealthy",
            summary="the check could not be made",
            evidence={"error": type(error).__name__},
            remediation="Look into the log of the function api.",
        )
