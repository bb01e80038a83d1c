"""Cost: what the answer cost.

``usage.cost_usd`` as the record carries it, in US dollars; no price list is applied here.
"""

from records.evaluators.bounds import BoundsParams, read_usage
from records.evaluators.contract import Evaluator, Judge, Score, skipped
from records.record import Record

NO_COST = skipped("the record has no usage.cost_usd")


class CostParams(BoundsParams):
    """Parameters of cost, in US dollars."""


def build_judge(params: CostParams) -> Judge:
    """Build the judge."""

    def judge(record: Record) -> Score:
        cost_usd = read_usage(record.usage, "cost_usd")
        return NO_COST if cost_usd is None else params.score(cost_usd)

    return judge


EVALUATOR = Evaluator(
    name="cost",
    version=1,
    kind="number",
    description="How many US dollars the answer cost.",
    score_meaning="usage.cost_usd in US dollars, 0 or more. With min or max, a record passes within them. Skipped "
    "without usage.cost_usd.",
    params=CostParams,
    build=build_judge,
    minimum=0.0,
    unit="USD",
    better="lower",
)
