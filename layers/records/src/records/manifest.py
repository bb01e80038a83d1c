"""What is known about a published dataset object: its counts, what its conversion noted, where its shards begin."""

import msgspec

MANIFEST_VERSION = 1


class ShardStart(msgspec.Struct, frozen=True, gc=False):
    """A row border at which a reader may begin.

    Parameters
    ----------
    offset
        Bytes before the row in the canonical object.
    record
        Records before it: 0 for the first.
    """

    offset: int
    record: int


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What conversion accepted and changed; nothing here is an error.

    Parameters
    ----------
    byte_order_mark
        The file began with one; it was dropped.
    crlf_lines, blank_lines
        Lines ended by CR LF; lines without a row.
    final_newline_missing
        The last row had no line end.
    derived_ids
        Rows without an id, which got one made from their content.
    integer_ids
        Rows whose id was an integer and became text.
    text_contexts
        Rows whose context was one text and became a list of it.
    replaced_nuls
        Texts in which NUL characters became U+FFFD.
    aliases
        Records in which a field was filled from another name: ``{"question -> input": 12}``.
    unmatched_mapping
        Canonical fields whose mapping was found in no row.
    dropped_columns
        Parquet columns that hold no data of the sender's (a pandas index).
    zoneless_columns
        Parquet columns of timestamps without a zone, which were read as UTC.
    """

    byte_order_mark: bool = False
    crlf_lines: int = 0
    blank_lines: int = 0
    final_newline_missing: bool = False
    derived_ids: int = 0
    integer_ids: int = 0
    text_contexts: int = 0
    replaced_nuls: int = 0
    aliases: dict[str, int] = {}
    unmatched_mapping: list[str] = []
    dropped_columns: list[str] = []
    zoneless_columns: list[str] = []


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a dataset came from.

    Parameters
    ----------
    kind
        ``upload``, ``presigned`` or ``import``.
    format
        ``jsonl`` or ``parquet``.
    bytes
        Size of the file as sent.
    uri
        The object it was read from; ``None`` for a request's body.
    """

    kind: str
    format: str
    bytes: int
    uri: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The object beside a canonical object.

    Parameters
    ----------
    sha256
        Lower-case hex digest of the canonical object.
    bytes, records
        Size of the canonical object, and its rows.
    shards
        Row borders in rising order, the first at offset 0.
    notes
        What conversion accepted and changed.
    source
        Where the dataset came from.
    version
        Version of this format.
    """

    sha256: str
    bytes: int
    records: int
    shards: list[ShardStart]
    notes: Notes
    source: Source
    version: int = MANIFEST_VERSION


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the bytes to store: JSON, the same for the same manifest."""
    return msgspec.json.encode(manifest, order="sorted")


_DECODE = msgspec.json.Decoder(Manifest).decode


def decode_manifest(stored: bytes) -> Manifest:
    """Read what `encode_manifest` wrote.

    Raises
    ------
    msgspec.DecodeError
        The bytes are not a manifest.
    """
    return _DECODE(stored)
