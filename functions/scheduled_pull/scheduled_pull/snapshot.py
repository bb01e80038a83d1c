"""The snapshot of a window: one canonical row a trace, and the manifest that says where shards may begin."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from records.canonical_json import NotCanonicalError, canonical_json
from records.canonical_rows import SHARD_BYTES_MAX, SHARD_RECORDS_MAX
from records.field_types import ID_CHARACTERS_MAX, TYPE_CHECKS
from records.manifest import Manifest, Notes, ShardStart, Source, encode_manifest
from records.redaction import RedactionError, RedactionRules, Redactor

from scheduled_pull.record_from_trace import make_row
from scheduled_pull.traces import PullFailedError, Trace


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The records of a window, ready to be stored.

    Attributes
    ----------
    content
        Canonical JSONL.
    sha256
        Of it, in hex.
    records
        How many rows.
    manifest
        As it is stored beside it.
    redactions
        Replacements by kind.
    """

    content: bytes
    sha256: str
    records: int
    manifest: bytes
    redactions: dict[str, int]


def build_snapshot(
    traces: Iterable[Trace], rules: RedactionRules, mapping: Mapping[str, str], *, max_bytes: int, uri: str
) -> Snapshot:
    """Redact traces and write them as records, in the order of their starts and ids.

    Parameters
    ----------
    traces
        Complete, each once.
    max_bytes
        Of the canonical rows, after redaction.
    uri
        Where they come from, for the manifest.

    Raises
    ------
    PullFailedError
        The rows are larger than `max_bytes`, or a trace makes no record.
    """
    redactor, counts = Redactor(rules), Counter[str]()
    rows: list[bytes] = []
    size = 0
    for row in _make_rows(traces, redactor, counts, mapping):
        rows.append(row)
        size += len(row)
        if size > max_bytes:
            raise PullFailedError(
                "snapshot_too_large",
                f"The redacted records of the window are larger than max_snapshot_bytes ({max_bytes} bytes). Take a "
                "shorter window, drop fields, or raise the limit.",
            )
    content = b"".join(rows)
    sha256 = hashlib.sha256(content).hexdigest()
    origin = Source("source", "jsonl", len(content), uri)
    manifest = Manifest(sha256, len(content), len(rows), _cut_shards(rows), Notes(), origin)
    return Snapshot(content, sha256, len(rows), encode_manifest(manifest), dict(sorted(counts.items())))


def _make_rows(
    traces: Iterable[Trace], redactor: Redactor, counts: Counter[str], mapping: Mapping[str, str]
) -> Iterator[bytes]:
    taken: dict[str, int] = {}
    for trace in sorted(traces, key=lambda one: (one.start, one.trace_id)):
        try:
            row = redactor.redact_row(make_row(trace, mapping), counts)
            row["id"] = _free_id(str(row["id"]), taken)
            for field, check in TYPE_CHECKS.items():
                misfit = check(row.get(field))
                if misfit is not None:
                    raise PullFailedError("trace_not_usable", f"{misfit.message}; see `mapping`", trace.trace_id)
            yield canonical_json(row) + b"\n"
        except (NotCanonicalError, RedactionError, RecursionError) as error:
            reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise PullFailedError(
                "trace_not_usable", f"The trace makes no record: {reason}.", trace.trace_id
            ) from error


def _free_id(record_id: str, taken: dict[str, int]) -> str:
    """Return an id that no row has yet: redaction may have made many alike. taken: number by id that was given."""
    stem = free = record_id[: ID_CHARACTERS_MAX - 8]
    while free in taken:
        taken[stem] += 1
        free = f"{stem}-{taken[stem]}"
    taken[free] = 1
    return free


def _cut_shards(rows: list[bytes]) -> list[ShardStart]:
    shards: list[ShardStart] = []
    offset = records = size = 0
    for number, row in enumerate(rows):
        if not shards or records == SHARD_RECORDS_MAX or size + len(row) > SHARD_BYTES_MAX:
            shards.append(ShardStart(offset, number))
            records = size = 0
        offset += len(row)
        records += 1
        size += len(row)
    return shards
