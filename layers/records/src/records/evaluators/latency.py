"""Latency: how long the answer took.

``usage.latency_ms`` as the record carries it, in milliseconds; nothing is measured here.
"""

from records.evaluators.bounds import BoundsParams, read_usage
from records.evaluators.contract import Evaluator, Judge, Score, skipped
from records.record import Record

NO_LATENCY = skipped("the record has no usage.latency_ms")


class LatencyParams(BoundsParams):
    """Parameters of latency, in milliseconds."""


def build_judge(params: LatencyParams) -> Judge:
    """Build the judge."""

    def judge(record: Record) -> Score:
        latency_ms = read_usage(record.usage, "latency_ms")
        return NO_LATENCY if latency_ms is None else params.score(latency_ms)

    return judge


EVALUATOR = Evaluator(
    name="latency",
    version=1,
    kind="number",
    description="How many milliseconds the answer took.",
    score_meaning="usage.latency_ms in milliseconds, 0 or more. With min or max, a record passes within them. Skipped "
    "without usage.latency_ms.",
    params=LatencyParams,
    build=build_judge,
    minimum=0.0,
    unit="ms",
    better="lower",
)
