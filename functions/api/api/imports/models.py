"""Imports as the API takes them."""

from typing import Annotated

from coordination.datasets import DatasetName
from coordination.http.pages import PageQuery
from coordination.imports import FieldMapping, FileFormat, NulRule
from coordination.models import RequestModel
from pydantic import AfterValidator, Field
from records.row_fields import check_mapping


class RequestImport(RequestModel):
    """Which object to import, and as what."""

    name: DatasetName
    uri: Annotated[
        str,
        Field(
            max_length=1200,
            description="s3://<bucket>/datasets/incoming/<project>/…",
            examples=["s3://evalward-data/datasets/incoming/demo/support.parquet"],
        ),
    ]
    format: Annotated[FileFormat | None, Field(description="by the file's ending when left out")] = None
    mapping: Annotated[FieldMapping | None, AfterValidator(check_mapping)] = None
    nul: Annotated[NulRule, Field(description="what to do with NUL characters")] = "refuse"
    validate_only: Annotated[bool, Field(description="check and count, publish nothing")] = False


class ImportQuery(PageQuery):
    """Which imports to list."""

    state: Annotated[
        str | None, Field(pattern="^(queued|running|succeeded|failed)$", description="only imports in this state")
    ] = None
