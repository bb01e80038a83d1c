"""Publish the body of a request."""

from typing import Annotated

import orjson
from coordination.access import Principal
from coordination.database import Transaction
from coordination.datasets import Dataset, DatasetName, publish_dataset
from coordination.environment import Environment
from coordination.imports import FieldMapping, FileFormat, NulRule
from coordination.models import QueryModel
from pydantic import AfterValidator, BeforeValidator, Field
from records.limits import Limits
from records.row_fields import check_mapping

from dataset_conversion.publication import File, StoredFile, check_file, store_file


def _parse_mapping(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise ValueError("must be a JSON object, URL-encoded") from error


class UploadQuery(QueryModel):
    """How the body is read and what it becomes."""

    name: Annotated[DatasetName, Field(description="of the dataset; another content under it is its next version")]
    format: Annotated[FileFormat, Field(description="the content type is not looked at: this decides")]
    validate_only: Annotated[bool, Field(description="check and count, publish nothing")] = False
    mapping: Annotated[
        FieldMapping | None,
        BeforeValidator(_parse_mapping),
        AfterValidator(check_mapping),
        Field(description="a JSON object: canonical field -> JSON Pointer or column"),
    ] = None
    nul: Annotated[NulRule, Field(description="what to do with NUL characters")] = "refuse"


def convert_upload(environment: Environment, project: str, query: UploadQuery, content: bytes) -> StoredFile:
    """Convert a body; unless it is only to be validated, put the object too. Harmless when done twice.

    Raises
    ------
    DatasetRefusedError, InvalidRequestError, StorageUnavailableError
        As `store_file`.
    """
    file = File(content=content, format=query.format, mapping=query.mapping, nul=query.nul, kind="upload")
    if query.validate_only:
        return StoredFile(check_file(file, Limits()), 0)
    return store_file(environment, project, file, Limits())


def publish_upload(
    transaction: Transaction, query: UploadQuery, stored: StoredFile, principal: Principal
) -> tuple[Dataset, bool]:
    """Write the row of a body whose object is in the bucket; see `publish_dataset`."""
    conversion = stored.conversion
    return publish_dataset(
        transaction,
        name=query.name,
        sha256=conversion.sha256,
        records=conversion.records,
        size=conversion.bytes,
        source="upload",
        principal=principal.id,
        generation=stored.generation,
    )
