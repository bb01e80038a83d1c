"""Find and list dataset versions, and read their records."""

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import orjson
from coordination.database import Transaction
from coordination.datasets import (
    Dataset,
    find_dataset_by_name,
    find_dataset_by_sha256,
    list_dataset_rows,
    to_dataset,
)
from coordination.errors import InvalidCursorError, NotFoundError, ObjectMissingError
from coordination.http.pages import (
    Page,
    PageQuery,
    decode_cursor,
    encode_cursor,
    make_page,
    read_number,
    read_text,
)
from coordination.ports.objects import ObjectNotFoundError, Objects
from pydantic import Field

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME_AT_VERSION = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,127})@([1-9][0-9]{0,8})")
# A record has at most 4 MiB and its line end: a range of this size holds at least one whole record.
_LARGEST_RANGE = 4 * 1024 * 1024 + 1
_SPARE_BYTES = 64 * 1024


class DatasetQuery(PageQuery):
    """Which versions to list."""

    name: Annotated[str | None, Field(max_length=128, description="only versions of this name")] = None


def list_datasets(transaction: Transaction, query: DatasetQuery) -> Page[Dataset]:
    """List versions, newest first."""
    after = decode_cursor("datasets", query.cursor, datetime.fromisoformat, UUID)
    rows = list_dataset_rows(transaction, query.name, after, query.limit + 1)
    return make_page(
        "datasets", rows, query.limit, to_dataset, lambda row: [row["created_at"].isoformat(), str(row["id"])]
    )


def find_dataset(transaction: Transaction, reference: str) -> Dataset:
    """Find a version by `<sha256>` or `<name>@<version>`.

    Raises
    ------
    NotFoundError
        There is none.
    """
    dataset = None
    if _SHA256.fullmatch(reference):
        dataset = find_dataset_by_sha256(transaction, reference)
    elif match := _NAME_AT_VERSION.fullmatch(reference):
        dataset = find_dataset_by_name(transaction, match[1], int(match[2]))
    if dataset is None:
        raise NotFoundError("There is no such dataset here. Name it by its sha256 or as name@version.")
    return dataset


def read_record_page(objects: Objects, dataset: Dataset, query: PageQuery) -> Page[dict[str, Any]]:
    """Read records from where the cursor points, in the dataset's order.

    One range read of the object, as long as `limit` records of the dataset's average size need, and at most 4 MiB: a
    page of large records is shorter than `limit`.

    Raises
    ------
    InvalidCursorError
        It belongs to another dataset or points into the middle of a row.
    ObjectMissingError
        The dataset's object is not in the bucket.
    StorageUnavailableError
        The bucket cannot be reached or refused.
    """
    after = decode_cursor("records", query.cursor, read_text, read_number(dataset.bytes))
    # A cursor names the content it belongs to: another dataset's byte offset would point into the middle of a row.
    if after and after[0] != dataset.sha256:
        raise InvalidCursorError("The cursor belongs to another dataset; begin without one.")
    start: int = after[1] if after else 0
    wanted = min(_LARGEST_RANGE, query.limit * (dataset.bytes // dataset.records + 1) * 2 + _SPARE_BYTES)
    lines: list[bytes] = []
    for size in (wanted, _LARGEST_RANGE):
        end = min(dataset.bytes, start + size)
        if start >= end:
            break
        lines = _read_range(objects, dataset, start, end).split(b"\n")[:-1][: query.limit]
        if lines:
            break
    position = start + sum(len(line) + 1 for line in lines)
    cursor = encode_cursor("records", [dataset.sha256, position]) if position < dataset.bytes else None
    try:
        return Page(items=[orjson.loads(line) for line in lines], next_cursor=cursor)
    except orjson.JSONDecodeError as error:
        raise InvalidCursorError("Send `next_cursor` of the page before, unchanged.") from error


def _read_range(objects: Objects, dataset: Dataset, start: int, end: int) -> bytes:
    try:
        return objects.read(dataset.path, start, end)
    except ObjectNotFoundError as error:
        raise ObjectMissingError(
            f"The records of {dataset.name}@{dataset.version} are not in the bucket: the dataset was deleted at this "
            "moment, or its object was removed by other means. If the dataset is still listed, publish the same "
            "content again; it gets the same address."
        ) from error
