"""Order an import, and see how imports went."""

from datetime import datetime
from uuid import UUID, uuid4

from coordination.access import Principal
from coordination.database import Transaction
from coordination.errors import Fault, InvalidRequestError, NotFoundError
from coordination.http.pages import Page, decode_cursor, make_page
from coordination.http.validation import read_path_id
from coordination.imports import Import, ImportOrder, format_of, insert_import, split_incoming_key, to_import
from coordination.queries import load_queries

from api.imports.models import ImportQuery, RequestImport

_QUERIES = load_queries("imports")


def request_import(transaction: Transaction, request: RequestImport, bucket: str, principal: Principal) -> Import:
    """Queue the import of an object under `datasets/incoming/<project>/` of the bundle's bucket.

    Raises
    ------
    InvalidRequestError
        The address lies elsewhere (another bucket, another project, `..`, encoded characters) or asks for a version,
        or its ending names no format and none is given.
    """
    if "?versionId=" in request.uri:
        message = "an S3 address names no version: leave ?versionId=… out, the newest content is imported"
        raise InvalidRequestError.at([Fault("/uri", message)])
    key = request.uri.removeprefix(f"s3://{bucket}/")
    place = split_incoming_key(key)
    if key == request.uri or place is None or place[0] != transaction.tenant:
        message = f"must lie under s3://{bucket}/datasets/incoming/{transaction.tenant}/, written without encoding"
        raise InvalidRequestError.at([Fault("/uri", message)])
    file_format = request.format or format_of(key)
    if file_format is None:
        raise InvalidRequestError.at([Fault("/format", "give it: the address ends in neither .jsonl nor .parquet")])
    order = ImportOrder(
        bucket=bucket,
        key=key,
        name=request.name,
        format=file_format,
        mapping=request.mapping,
        nul=request.nul,
        validate_only=request.validate_only,
    )
    queued = insert_import(
        transaction,
        order=order,
        dedupe_key=f"request {uuid4()}",
        principal=principal.id,
        cause=("route", "datasets.import"),
    )
    assert queued is not None  # noqa: S101 - the key is new
    return queued


def get_import(transaction: Transaction, reference: str) -> Import:
    """Return an import.

    Raises
    ------
    NotFoundError
        There is none of that id.
    """
    import_id = read_path_id(reference, "import")
    row = transaction.fetch_one(_QUERIES["find_import"], {"tenant": transaction.tenant, "id": import_id})
    if row is None:
        raise NotFoundError("There is no such import.")
    return to_import(row)


def list_imports(transaction: Transaction, query: ImportQuery) -> Page[Import]:
    """List imports, newest first."""
    after = decode_cursor("imports", query.cursor, datetime.fromisoformat, UUID)
    rows = transaction.fetch_all(
        _QUERIES["list_imports"],
        {
            "tenant": transaction.tenant,
            "state": query.state,
            "after_created_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": query.limit + 1,
        },
    )
    return make_page(
        "imports", rows, query.limit, to_import, lambda row: [row["created_at"].isoformat(), str(row["id"])]
    )
