"""Convert a file and put the canonical object and its manifest into the bucket: everything before the row."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, BinaryIO, cast

from coordination.datasets import Validation, manifest_key, object_key, read_generation
from coordination.environment import Environment
from coordination.errors import DatasetRefusedError, Fault, InvalidRequestError
from records.limits import Limits
from records.manifest import Manifest, Source, encode_manifest
from records.row_errors import DatasetInvalidError
from records.row_fields import MappingInvalidError

from dataset_conversion.conversion import Conversion, FileFormat, NulRule, convert

# A canonical object of this size stays in memory; a larger one goes through a temporary file.
_IN_MEMORY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that may become a dataset.

    Attributes
    ----------
    content
        Its bytes, or where they are read from.
    format, mapping, nul
        How it is read.
    kind
        `upload`, `presigned` or `import`.
    uri
        The object it is; None for a request's body.
    check
        Called when all of it was read, before anything is put; what it raises refuses the file.
    """

    content: BinaryIO | bytes
    format: FileFormat
    mapping: Mapping[str, str] | None
    nul: NulRule
    kind: str
    uri: str | None = None
    check: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file whose object is in the bucket.

    Attributes
    ----------
    conversion
        What it became.
    generation
        How often its content had been removed before the object was put: `publish_dataset` compares.
    """

    conversion: Conversion
    generation: int


def check_file(file: File, limits: Limits) -> Conversion:
    """Convert without keeping anything.

    Raises
    ------
    DatasetRefusedError, InvalidRequestError
        As `store_file`.
    """
    conversion = _convert(file, None, limits)
    if file.check is not None:
        file.check()
    return conversion


def describe_validation(name: str, conversion: Conversion) -> Validation:
    """Say what a file would become."""
    notes = conversion.notes
    return Validation(
        name=name,
        sha256=conversion.sha256,
        records=conversion.records,
        bytes=conversion.bytes,
        derived_ids=notes.derived_ids,
        notes={field: getattr(notes, field) for field in notes.__struct_fields__},
    )


def store_file(environment: Environment, project: str, file: File, limits: Limits) -> StoredFile:
    """Convert a file and put the canonical object, then its manifest.

    Both keys are content-addressed and written only when they are free: doing it twice changes nothing, and nothing
    points to them before the row does. Bounded memory: a temporary file holds what is over 8 MiB.

    Raises
    ------
    DatasetRefusedError
        The file is no valid dataset; rows and fields are named.
    InvalidRequestError
        The mapping is not right.
    ContentBeingRemovedError
        The same content is being removed.
    StorageUnavailableError
        The bucket cannot be reached or refused.
    """
    objects = environment.objects
    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as canonical:
        conversion = _convert(file, canonical, limits)
        if file.check is not None:
            file.check()
        with environment.database.transaction(project) as transaction:
            generation = read_generation(transaction, conversion.sha256)
        canonical.seek(0)
        objects.put(object_key(project, conversion.sha256), cast("BinaryIO", canonical), "application/x-ndjson")
    manifest = Manifest(
        sha256=conversion.sha256,
        bytes=conversion.bytes,
        records=conversion.records,
        shards=list(conversion.shards),
        notes=conversion.notes,
        source=Source(kind=file.kind, format=file.format, bytes=conversion.source_bytes, uri=file.uri),
    )
    objects.put(manifest_key(project, conversion.sha256), encode_manifest(manifest), "application/json")
    return StoredFile(conversion, generation)


def _convert(file: File, canonical: IO[bytes] | None, limits: Limits) -> Conversion:
    write = canonical.write if canonical is not None else len
    try:
        return convert(file.content, file.format, write, mapping=file.mapping, nul=file.nul, limits=limits)
    except DatasetInvalidError as error:
        rows = [
            {"row": one.row, "field": one.field, "reason": one.reason, "message": one.message} for one in error.errors
        ]
        first = error.errors[0]
        place = f", in row {first.row}" if first.row is not None else ""
        raise DatasetRefusedError(
            f"{len(rows)} error{'s' if len(rows) > 1 else ''}; the first{place}: {first.message}. Nothing was "
            "published; correct the file and send it again.",
            errors=rows,
        ) from error
    except MappingInvalidError as error:
        raise InvalidRequestError.at([Fault("/mapping", str(error))]) from error
