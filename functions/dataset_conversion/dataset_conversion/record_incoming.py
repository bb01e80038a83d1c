"""Note what S3 says: each new object under `datasets/incoming/<project>/` becomes an import."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote_plus

from aws_lambda_powertools import Logger
from coordination.datasets import NAME_PATTERN
from coordination.environment import Environment
from coordination.errors import ImportRefusedError
from coordination.imports import (
    ImportFailure,
    ImportOrder,
    dedupe_key_of_event,
    find_incoming_project,
    format_of,
    insert_import,
)
from coordination.queries import load_queries

logger = Logger(child=True)

_PRINCIPAL = "s3"


def record_incoming(environment: Environment, records: Sequence[dict[str, Any]]) -> None:
    """Write an import for every object that was created; what is no such event is logged and passed over.

    The same event twice is one import: (bucket, key, sequencer) tells. Removals and delete markers are passed over:
    what was published stays. One transaction of the project each; the work itself follows through a wake-up.
    """
    for record in records:
        name = str(record.get("eventName", ""))
        if not name.removeprefix("s3:").startswith("ObjectCreated:"):
            logger.info("event passed over", extra={"event_name": name})
            continue
        _record_object(environment, record["s3"], str(record.get("eventTime", "")))


def _record_object(environment: Environment, event: dict[str, Any], happened_at: str) -> None:
    bucket = str(event["bucket"]["name"])
    # Keys are URL-encoded in events, with a plus for a space. Decoded once: what then still looks encoded is a name.
    key = unquote_plus(str(event["object"]["key"]))
    place = find_incoming_project(key)
    if bucket != environment.settings.storage.bucket or place is None:
        # A folder object, or a place that belongs to no project: nobody to tell but the log.
        logger.warning("object passed over: it lies under no project's incoming prefix")
        return
    project, file_name = place
    # The order of writes to one key; S3 sends it, other stores may not.
    order_text = str(event["object"].get("sequencer") or happened_at)
    version_id = event["object"].get("versionId")
    name, _, _ = file_name.rpartition(".")
    file_format = format_of(file_name)
    order = ImportOrder(
        bucket=bucket, key=key, version_id=version_id, name=name or file_name, format=file_format or "jsonl"
    )
    problem = _find_problem(file_name, name, is_known_format=file_format is not None)
    failure = ImportFailure(code=ImportRefusedError.code, detail=problem, errors=[]) if problem else None
    with environment.database.transaction(project) as transaction:
        if transaction.fetch_one(load_queries("projects")["find_project"], {"id": project}) is None:
            logger.warning("object passed over: there is no such project", extra={"project": project})
            return
        dedupe_key = dedupe_key_of_event(bucket, key, order_text)
        insert_import(
            transaction,
            order=order,
            dedupe_key=dedupe_key,
            principal=_PRINCIPAL,
            cause=("incoming_prefix", f"datasets/incoming/{transaction.tenant}/"),
            failure=failure,
        )


def _find_problem(file_name: str, name: str, *, is_known_format: bool) -> str | None:
    if "/" in file_name:
        return "Objects in deeper folders are not imported by themselves; put it right under the project's prefix."
    if not is_known_format:
        return "The object's name must end in .jsonl or .parquet."
    # Not `match`: its $ would let a line end pass.
    if not re.fullmatch(NAME_PATTERN, name):
        return "The object's name is no dataset name: letters, digits, dot, underscore and hyphen, 128 at most."
    return None
