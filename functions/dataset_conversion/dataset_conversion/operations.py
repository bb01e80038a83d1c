"""The declarations of the dataset operations that write."""

from coordination.database import Transaction
from coordination.datasets import Dataset, Validation
from coordination.http.operation import Answer, Call, LocalWrite, Operation
from pydantic import RootModel
from records.row_fields import ALIASES, FIELDS

from dataset_conversion.conversion import Conversion
from dataset_conversion.finalize_upload import (
    FinalizeQuery,
    PreparedUpload,
    check_upload,
    prepare_upload,
    publish_reserved,
)
from dataset_conversion.publication import StoredFile, describe_validation
from dataset_conversion.reserve_upload import Reservation, ReserveUpload, reserve_upload
from dataset_conversion.upload_dataset import (
    UploadQuery,
    convert_upload,
    publish_upload,
)

MAX_UPLOAD_BYTES = 4 * 1024 * 1024
_ROWS = (
    "One record a line (JSONL) or row (Parquet), with an input or an output. "
    f"Its fields: {', '.join(FIELDS)}; without an id it gets one. A field that a row lacks is filled from the first "
    "of its aliases there: "
    + "; ".join(f"{field} from {', '.join(names)}" for field, names in ALIASES.items())
    + ". Every other name becomes metadata"
)


class DatasetOrValidation(RootModel[Dataset | Validation]):
    """The version that has this content already, or with validate_only what the file would become."""


def _convert(call: Call) -> StoredFile:
    return convert_upload(call.environment, call.project, call.query_as(UploadQuery), call.content)


def _publish(call: Call, transaction: Transaction) -> Answer:
    query, stored = call.query_as(UploadQuery), call.prepared
    if query.validate_only:
        return Answer(200, describe_validation(query.name, stored.conversion))
    return _answer(call, *publish_upload(transaction, query, stored, call.principal))


def _reserve(call: Call, transaction: Transaction) -> Answer:
    wanted = call.body_as(ReserveUpload)
    return Answer(201, reserve_upload(transaction, call.environment.objects, wanted, call.principal))


def _prepare(call: Call) -> PreparedUpload | tuple[str, Conversion]:
    act = check_upload if call.query_as(FinalizeQuery).validate_only else prepare_upload
    return act(call.environment, call.project, call.path["upload"])


def _finalize(call: Call, transaction: Transaction) -> Answer:
    if call.query_as(FinalizeQuery).validate_only:
        return Answer(200, describe_validation(*call.prepared))
    return _answer(call, *publish_reserved(transaction, call.prepared, call.principal))


def _answer(call: Call, dataset: Dataset, is_new: bool) -> Answer:
    location = f"/v1/projects/{call.project}/datasets/{dataset.name}@{dataset.version}"
    return Answer(201 if is_new else 200, dataset, {"location": location})


OPERATIONS = (
    Operation(
        id="datasets.upload",
        method="POST",
        path="/v1/projects/{project}/datasets",
        summary="Publish the body (at most 4 MiB) as a dataset, or with validate_only just check it.",
        permission="datasets.write",
        query=UploadQuery,
        max_content_bytes=MAX_UPLOAD_BYTES,
        content_meaning=_ROWS,
        too_large_advice=(
            "Send a larger file (up to 64 MiB) the presigned way: POST …/uploads, PUT the file to its URL, POST "
            "…/finalize; or put it into the bucket under datasets/incoming/<project>/."
        ),
        responses={200: DatasetOrValidation, 201: Dataset},
        idempotency=LocalWrite(),
        prepare=_convert,
        handle=_publish,
    ),
    Operation(
        id="uploads.create",
        method="POST",
        path="/v1/projects/{project}/uploads",
        summary="Reserve capacity for a file of up to 64 MiB and get the URL that takes it.",
        permission="datasets.write",
        body=ReserveUpload,
        responses={201: Reservation},
        # The URL is stored and replayed: all it lets anybody do is put this one file, for an hour.
        idempotency=LocalWrite(),
        handle=_reserve,
    ),
    Operation(
        id="uploads.finalize",
        method="POST",
        path="/v1/projects/{project}/uploads/{upload}/finalize",
        summary="Convert an uploaded file and publish it, or with validate_only just check it.",
        permission="datasets.write",
        query=FinalizeQuery,
        responses={200: DatasetOrValidation, 201: Dataset},
        error_statuses=frozenset({409}),
        idempotency=LocalWrite(),
        prepare=_prepare,
        handle=_finalize,
    ),
)
