"""Publish a file as a dataset: one write in one or three steps, which can be interrupted anywhere and repeated.

Up to 4 MiB go in one request. A larger file is reserved for, put to a presigned URL and finalized. Each step has a key
of its own, made of the key of the whole; a step that is repeated is answered as the first time:

    reserve     replays the reservation, the same URL for the same file
    put         the store has the file already (412) or takes it whole; it takes no other content
    finalize    replays the dataset

A URL lasts an hour. When it has run out before the file was there, nothing has been published, and the steps begin
anew under the next number.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from evalward.errors import ConfigurationError, ProblemError, UploadRefusedError
from evalward.pending_writes import HeldKey
from evalward.transport import JsonObject, Transport, Write

DIRECT_BYTES = 4 * 1024 * 1024
"""The largest file that goes in one request."""

# A conversion may outlast the gateway's 30 s: then it is asked for again.
_FINALIZE_SECONDS = 300.0
_PUT_SECONDS = 600.0
_BLOCK_BYTES = 256 * 1024
_FORMATS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
_GONE = frozenset({"upload_ended", "upload_missing", "not_found"})


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedDataset:
    """What a file is to become.

    Attributes
    ----------
    name
        Of the dataset; None takes the file's name without its ending.
    format
        `jsonl` or `parquet`; None goes by the file's ending.
    mapping
        Canonical field -> JSON Pointer or column.
    nul
        What to do with NUL characters: `refuse` or `replace`.
    validate_only
        Check and count, publish nothing.
    """

    name: str | None = None
    format: str | None = None
    mapping: dict[str, str] | None = None
    nul: str | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Publication:
    """What became of a file.

    Attributes
    ----------
    dataset
        The dataset version, or with `validate_only` the counts and ids it would have.
    is_new
        False when the newest version of that name has this content already.
    """

    dataset: JsonObject
    is_new: bool


def publish_file(
    transport: Transport,
    project: str,
    file: Path,
    wanted: WantedDataset,
    *,
    idempotency_key: str | None = None,
    progress: Callable[[int, int], None] = lambda _sent, _total: None,
) -> Publication:
    """Publish a file; repeated after an interruption, it goes on where it stopped and publishes once.

    Parameters
    ----------
    transport
        Carries the requests.
    project
        Where to.
    file
        JSONL or Parquet, at most 64 MiB.
    wanted
        What it is to become.
    idempotency_key
        A key of your own (at most 112 characters); by default one from the transport's keeper.
    progress
        Is told how many bytes of how many were sent.

    Raises
    ------
    ConfigurationError
        The file cannot be read, or its format is not known.
    ProblemError
        The API refused: for a file that is no dataset `dataset_invalid`, with its rows and fields.
    UploadRefusedError
        The object store did not take the file.
    OutcomeUnknownError, UnreachableError
        As everywhere; publish the same file again.
    """
    format_ = wanted.format or _FORMATS.get(file.suffix.lower())
    if format_ is None:
        raise ConfigurationError(f"{file.name} ends neither in .jsonl nor in .parquet: say which it is (--format).")
    fields: JsonObject = {"name": wanted.name or file.stem, "format": format_, "nul": wanted.nul}
    # Content that is the newest version already makes no other one, so a key that is too old may be replaced.
    try:
        size = file.stat().st_size
        if size <= DIRECT_BYTES:
            content = file.read_bytes()
            mapping = None if wanted.mapping is None else json.dumps(wanted.mapping)
            query = fields | {"mapping": mapping, "validate_only": wanted.validate_only or None}
            write = Write(operation="datasets.upload", path={"project": project}, query=query, content=content)
            with transport.hold(write, idempotency_key, is_harmless_twice=True) as held:
                return _read_publication(transport.write_under(held, write))
        body = {name: value for name, value in fields.items() if value is not None}
        body |= {"bytes": size, "sha256": hash_file(file)} | ({"mapping": wanted.mapping} if wanted.mapping else {})
        reserve = Write(operation="uploads.create", path={"project": project}, body=body)
        with transport.hold(reserve, idempotency_key, is_harmless_twice=True) as held:
            upload = _Upload(transport, project, file, size, held, progress)
            return upload.publish(reserve, validate_only=wanted.validate_only)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}.") from error


def hash_file(file: Path) -> str:
    """Return the SHA-256 of a file in hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class _Upload:
    """The three steps. The note of the held key says where they stand: a round, and the upload once it is there."""

    def __init__(
        self,
        transport: Transport,
        project: str,
        file: Path,
        size: int,
        held: HeldKey,
        progress: Callable[[int, int], None],
    ) -> None:
        self._transport = transport
        self._project = project
        self._file = file
        self._size = size
        self._held = held
        self._progress = progress
        note = cast("JsonObject", json.loads(held.note)) if held.note else {}
        self._round = int(note.get("round", 1))
        self._upload: str | None = note.get("upload")

    def publish(self, reserve: Write, *, validate_only: bool) -> Publication:
        last_round = self._round + 1
        while True:
            try:
                if self._upload is None:
                    self._send_file(reserve)
                return self._finalize(validate_only=validate_only)
            except _GoneError as error:
                if self._round == last_round:
                    raise error.reason from error
                self._round += 1
                self._upload = None
                self._remember()

    def _send_file(self, reserve: Write) -> None:
        suffix = f"-{self._round}-reserve"
        answer = self._transport.write_under(self._held, reserve, suffix=suffix, is_last=False)
        reservation = cast("JsonObject", answer.json())
        headers = {"content-length": str(self._size)} | cast("dict[str, str]", reservation["headers"])
        stored = self._transport.put_file(reservation["url"], headers, self._read_blocks, _PUT_SECONDS)
        # 412: an object is there already, and the URL takes no other content than this file's.
        if stored.status_code == 403:
            raise _GoneError(UploadRefusedError("The object store refuses the upload: its URL has run out."))
        if stored.status_code >= 400 and stored.status_code != 412:
            self._held.finish()
            text = stored.text[:500].strip()
            raise UploadRefusedError(f"The object store refused {self._file.name}: HTTP {stored.status_code} {text}")
        self._progress(self._size, self._size)
        self._upload = str(reservation["id"])
        self._remember()

    def _finalize(self, *, validate_only: bool) -> Publication:
        assert self._upload is not None  # noqa: S101 - the file was sent
        path = {"project": self._project, "upload": self._upload}
        query = {"validate_only": validate_only or None}
        write = Write(operation="uploads.finalize", path=path, query=query)
        suffix = f"-{self._round}-{'check' if validate_only else 'finalize'}"
        try:
            answer = self._transport.write_under(self._held, write, suffix=suffix, patience_seconds=_FINALIZE_SECONDS)
        except ProblemError as error:
            if error.code in _GONE and self._held.was_interrupted:
                raise _GoneError(error) from error
            raise
        return _read_publication(answer)

    def _remember(self) -> None:
        self._held.remember(json.dumps({"round": self._round, "upload": self._upload}))

    def _read_blocks(self) -> Iterator[bytes]:
        sent = 0
        with self._file.open("rb") as stream:
            while block := stream.read(_BLOCK_BYTES):
                yield block
                sent += len(block)
                self._progress(sent, self._size)


class _GoneError(Exception):
    """The reservation is of no use any more."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason
        super().__init__(str(reason))


def _read_publication(answer: Any) -> Publication:
    return Publication(cast("JsonObject", answer.json()), is_new=answer.status_code == 201)
