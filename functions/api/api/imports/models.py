"""Imports as the API takes them."""

from typing import Annotated

from coordination.datasets import DatasetName
from coordination.http.pages import PageQuery
from coordination.imports import FieldMapping, FileFormat, NulRule
from coordination.models import RequestModel
from pydantic import Field


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
    mapping: FieldMapping | None = None
    nul: Annotated[NulRule, Field(description="what to do with NUL characters")] = "refuse"


class ImportQuery(PageQuery):
    """Which imports to list."""

    state: Annotated[
        str | None, Field(pattern="^(queued|running|succeeded|failed)$", description="only imports in this state")
    ] = None
