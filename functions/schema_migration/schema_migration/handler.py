"""Border of the deploy hook: a CloudFormation custom resource."""

from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.typing import LambdaContext
from coordination.clock import Deadline

from schema_migration.custom_resource import answer_custom_resource
from schema_migration.migrate_database import migrate_database
from schema_migration.settings import load_migration_settings

logger = Logger()


@logger.inject_lambda_context(clear_state=True)
def lambda_handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Migrate on Create and Update; Delete touches nothing. CloudFormation is always answered."""
    deadline = Deadline.of_invocation(context)
    return answer_custom_resource(event, deadline, lambda: migrate_database(load_migration_settings()))
