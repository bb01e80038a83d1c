"""Publish the body of a request."""

from typing import Annotated

import orjson
from coordination.access import Principal
from coordination.database import Transaction
from coordination.datasets import Dataset, DatasetName, publish_dataset
from coordination.environment import Environment
from coordination.imports import FileFormat, NulRule
from coordination.models import QueryModel, ResponseModel
from pydantic import Field, field_validator
from records.limits import Limits
from records.manifest import Notes

from dataset_conversion.conversion import Conversion
from dataset_conversion.publication import File, StoredFile, check_file, store_file


class UploadQuery(QueryModel):
    """How the body is read and what it becomes."""

    name: DatasetName
    format: Annotated[FileFormat, Field(description="the content type is not looked at: this decides")]
    validate_only: Annotated[bool, Field(description="check and count, publish nothing")] = False
    mapping: Annotated[
        dict[str, str] | None, Field(description="a JSON object: canonical field -> JSON Pointer or column")
    ] = None
    nul: Annotated[NulRule, Field(description="what to do with NUL characters")] = "refuse"

    @field_validator("mapping", mode="before")
    @classmethod
    def _parse_mapping(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError as error:
            raise ValueError("must be a JSON object, URL-encoded") from error


class Validation(ResponseModel):
    """What a file would become."""

    name: str
    sha256: str
    records: int
    bytes: Annotated[int, Field(description="size of the canonical object")]
    derived_ids: Annotated[int, Field(description="records whose id was made from their content")]
    notes: Annotated[dict[str, object], Field(description="what was accepted and changed")]


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


def describe_validation(query: UploadQuery, conversion: Conversion) -> Validation:
    """Say what a file would become."""
    notes: Notes = conversion.notes
    return Validation(
        name=query.name,
        sha256=conversion.sha256,
        records=conversion.records,
        bytes=conversion.bytes,
        derived_ids=notes.derived_ids,
        notes={name: getattr(notes, name) for name in notes.__struct_fields__},
    )
