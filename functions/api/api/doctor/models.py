"""What a check says."""

from typing import Annotated, Any, Literal

from coordination.models import ResponseModel
from pydantic import Field


class Check(ResponseModel):
    """One check, made just now."""

    id: Annotated[str, Field(examples=["doctor.jobengine.retention.terminal-budgets"])]
    status: Literal["healthy", "unhealthy"]
    summary: Annotated[str, Field(description="one sentence for people")]
    evidence: Annotated[
        dict[str, Any], Field(description="figures behind the status; no tenant ids and no payloads are in it")
    ]
    remediation: Annotated[str, Field(description="what to do; empty when healthy")]


class Checks(ResponseModel):
    """All checks."""

    checks: list[Check]


def judge(check_id: str, reasons: list[str], well: str, evidence: dict[str, Any], remediation: str) -> Check:
    """Make a check: unhealthy when there is a reason, which then is its summary."""
    if not reasons:
        return Check(id=check_id, status="healthy", summary=well, evidence=evidence, remediation="")
    return Check(
        id=check_id,
        status="unhealthy",
        summary="; ".join(reasons),
        evidence=evidence,
        remediation=remediation,
    )
