"""The operations below /v1 by their ids. A test holds the table to the API's own."""

from collections.abc import Mapping
from urllib.parse import quote

ROUTES: dict[str, str] = {
    "audit.list": "GET /v1/audit",
    "claims.list": "GET /v1/projects/{project}/idempotency-claims",
    "claims.resolve": "POST /v1/projects/{project}/idempotency-claims/{claim}/resolve",
    "datasets.content": "GET /v1/projects/{project}/datasets/{dataset}/content",
    "datasets.delete": "DELETE /v1/projects/{project}/datasets/{dataset}",
    "datasets.get": "GET /v1/projects/{project}/datasets/{dataset}",
    "datasets.import": "POST /v1/projects/{project}/datasets:import",
    "datasets.list": "GET /v1/projects/{project}/datasets",
    "datasets.records": "GET /v1/projects/{project}/datasets/{dataset}/records",
    "datasets.upload": "POST /v1/projects/{project}/datasets",
    "evaluate": "POST /v1/projects/{project}/evaluate",
    "evaluators.list": "GET /v1/evaluators",
    "failures.list": "GET /v1/projects/{project}/failures",
    "failures.resolve": "POST /v1/projects/{project}/failures/{failure}/resolve",
    "imports.get": "GET /v1/projects/{project}/imports/{import}",
    "imports.list": "GET /v1/projects/{project}/imports",
    "installation_claims.list": "GET /v1/idempotency-claims",
    "installation_claims.resolve": "POST /v1/idempotency-claims/{claim}/resolve",
    "keys.create": "POST /v1/keys",
    "keys.delete": "DELETE /v1/keys/{key}",
    "keys.list": "GET /v1/keys",
    "projects.create": "POST /v1/projects",
    "projects.get": "GET /v1/projects/{project}",
    "projects.list": "GET /v1/projects",
    "projects.update": "PATCH /v1/projects/{project}",
    "runs.cancel": "POST /v1/projects/{project}/runs/{run}/cancel",
    "runs.compare": "GET /v1/projects/{project}/runs:compare",
    "runs.create": "POST /v1/projects/{project}/runs",
    "runs.delete": "DELETE /v1/projects/{project}/runs/{run}",
    "runs.get": "GET /v1/projects/{project}/runs/{run}",
    "runs.label": "PATCH /v1/projects/{project}/runs/{run}",
    "runs.list": "GET /v1/projects/{project}/runs",
    "runs.outputs": "GET /v1/projects/{project}/runs/{run}/outputs",
    "runs.report": "GET /v1/projects/{project}/runs/{run}/report",
    "runs.results": "GET /v1/projects/{project}/runs/{run}/results",
    "runs.resume": "POST /v1/projects/{project}/runs/{run}/resume",
    "sources.create": "POST /v1/projects/{project}/sources",
    "sources.get": "GET /v1/projects/{project}/sources/{source}",
    "sources.list": "GET /v1/projects/{project}/sources",
    "sources.pause": "POST /v1/projects/{project}/sources/{source}/pause",
    "sources.preview": "POST /v1/projects/{project}/sources/{source}/preview",
    "sources.preview_new": "POST /v1/projects/{project}/sources:preview",
    "sources.resume": "POST /v1/projects/{project}/sources/{source}/resume",
    "sources.retire": "DELETE /v1/projects/{project}/sources/{source}",
    "sources.run_window": "POST /v1/projects/{project}/sources/{source}/windows/{start}/run",
    "sources.skip_window": "POST /v1/projects/{project}/sources/{source}/windows/{start}/skip",
    "sources.summary": "GET /v1/projects/{project}/sources/{source}/summary",
    "sources.update": "PATCH /v1/projects/{project}/sources/{source}",
    "sources.windows": "GET /v1/projects/{project}/sources/{source}/windows",
    "uploads.create": "POST /v1/projects/{project}/uploads",
    "uploads.finalize": "POST /v1/projects/{project}/uploads/{upload}/finalize",
    "webhooks.create": "POST /v1/projects/{project}/webhooks",
    "webhooks.delete": "DELETE /v1/projects/{project}/webhooks/{webhook}",
    "webhooks.get": "GET /v1/projects/{project}/webhooks/{webhook}",
    "webhooks.list": "GET /v1/projects/{project}/webhooks",
    "webhooks.list_deliveries": "GET /v1/projects/{project}/webhooks/{webhook}/deliveries",
    "webhooks.redeliver": "POST /v1/projects/{project}/deliveries/{delivery}/redeliver",
    "webhooks.test": "POST /v1/projects/{project}/webhooks/{webhook}/test",
    "whoami": "GET /v1/whoami",
}


def make_route(operation: str, path: Mapping[str, str]) -> tuple[str, str]:
    """Return method and path of an operation; each parameter stays one segment of the path, whatever is in it."""
    method, template = ROUTES[operation].split(" ")
    return method, template.format_map({name: _segment(value) for name, value in path.items()})


def _segment(value: str) -> str:
    # A segment of dots only would be taken for a place in the path.
    return quote(value, safe="@:") if value.strip(".") else value.replace(".", "%2E")
