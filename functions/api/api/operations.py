"""All operations this function serves."""

import api.audit.operations
import api.console.operations
import api.datasets.operations
import api.doctor.operations
import api.evaluators.operations
import api.failures.operations
import api.idempotency_claims.operations
import api.imports.operations
import api.keys.operations
import api.projects.operations
import api.reference.operations
import api.runs.operations
import api.sources.operations
import api.webhooks.operations

OPERATIONS = (
    *api.projects.operations.OPERATIONS,
    *api.keys.operations.OPERATIONS,
    *api.datasets.operations.OPERATIONS,
    *api.imports.operations.OPERATIONS,
    *api.runs.operations.OPERATIONS,
    *api.sources.operations.OPERATIONS,
    *api.webhooks.operations.OPERATIONS,
    *api.evaluators.operations.OPERATIONS,
    *api.failures.operations.OPERATIONS,
    *api.idempotency_claims.operations.OPERATIONS,
    *api.audit.operations.OPERATIONS,
    *api.doctor.operations.OPERATIONS,
)
PAGES = (*api.reference.operations.PAGES, *api.console.operations.PAGES)
