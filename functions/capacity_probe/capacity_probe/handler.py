"""Border of the capacity probe, which logs in as the owner of the schemas."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.environment import load_environment

from capacity_probe.measure_capacity import measure_capacity

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def lambda_handler(_event: dict[str, Any], _context: LambdaContext) -> dict[str, int]:
    """Measure if it is due, which the database says; a pulse that is late, doubled or lost changes nothing."""
    return measure_capacity(load_environment())
