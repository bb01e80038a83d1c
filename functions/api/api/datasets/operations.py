"""The declarations of the dataset operations that read or delete."""

from typing import Any

from coordination.database import Transaction
from coordination.datasets import Dataset
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from coordination.http.pages import Page, PageQuery

from api.datasets.delete_dataset import DeletedDataset, delete_dataset
from api.datasets.read_datasets import DatasetQuery, find_dataset, list_datasets, read_record_page


def _list(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, list_datasets(transaction, call.query_as(DatasetQuery)))


def _get(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, find_dataset(transaction, call.path["dataset"]))


def _content(call: Call, transaction: Transaction) -> Answer:
    dataset = find_dataset(transaction, call.path["dataset"])
    valid_seconds = call.environment.settings.storage.presign_seconds
    url = call.environment.objects.presign_get(dataset.path, valid_seconds, f"{dataset.name}@{dataset.version}.jsonl")
    return Answer(307, None, {"location": url, "cache-control": "no-store"})


def _read_records(call: Call) -> Page[dict[str, Any]]:
    # No transaction waits for the bucket.
    with call.environment.database.transaction(call.project) as transaction:
        dataset = find_dataset(transaction, call.path["dataset"])
    return read_record_page(call.environment.objects, dataset, call.query_as(PageQuery))


def _records(call: Call, _: Transaction) -> Answer:
    return Answer(200, call.prepared)


def _delete(call: Call, transaction: Transaction) -> Answer:
    return Answer(200, delete_dataset(transaction, call.path["dataset"], call.principal))


_DATASET = "/v1/projects/{project}/datasets/{dataset}"

OPERATIONS = (
    Operation(
        id="datasets.list",
        method="GET",
        path="/v1/projects/{project}/datasets",
        summary="List dataset versions, newest first.",
        permission="datasets.read",
        query=DatasetQuery,
        responses={200: Page[Dataset]},
        handle=_list,
    ),
    Operation(
        id="datasets.get",
        method="GET",
        path=_DATASET,
        summary="Read a version by its sha256 or as name@version.",
        permission="datasets.read",
        responses={200: Dataset},
        handle=_get,
    ),
    Operation(
        id="datasets.content",
        method="GET",
        path=f"{_DATASET}/content",
        summary="Redirect to a short-lived URL of the canonical JSONL object.",
        permission="datasets.read",
        responses={307: None},
        handle=_content,
    ),
    Operation(
        id="datasets.records",
        method="GET",
        path=f"{_DATASET}/records",
        summary="Read records in the dataset's order.",
        permission="datasets.read",
        query=PageQuery,
        responses={200: Page[dict[str, Any]]},
        prepare=_read_records,
        handle=_records,
    ),
    Operation(
        id="datasets.delete",
        method="DELETE",
        path=_DATASET,
        summary="Delete all names and versions of a content (by its sha256); its object goes when no run refers to it.",
        permission="datasets.delete",
        responses={200: DeletedDataset},
        idempotency=LocalWrite(),
        handle=_delete,
    ),
)
