"""The declarations of the dataset operations that write."""

from coordination.database import Transaction
from coordination.datasets import Dataset
from coordination.http.operation import Answer, Call, LocalWrite, Operation

from dataset_conversion.conversion import Conversion
from dataset_conversion.upload_dataset import (
    UploadQuery,
    Validation,
    convert_upload,
    describe_validation,
    publish_upload,
)

MAX_UPLOAD_BYTES = 4 * 1024 * 1024


def _convert(call: Call) -> Conversion:
    return convert_upload(call.environment.objects, call.project, call.query_as(UploadQuery), call.content)


def _publish(call: Call, transaction: Transaction) -> Answer:
    query, conversion = call.query_as(UploadQuery), call.prepared
    if query.validate_only:
        return Answer(200, describe_validation(query, conversion))
    dataset, is_new = publish_upload(transaction, query, conversion, call.principal)
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
        too_large_advice=(
            "Put a larger file (up to 64 MiB) into the bucket under datasets/incoming/<project>/: "
            "it is imported by itself, or with POST …/datasets:import."
        ),
        responses={200: Validation, 201: Dataset},
        idempotency=LocalWrite(),
        prepare=_convert,
        handle=_publish,
    ),
)
