"""Read what the worst records of a report were asked, answered and expected to answer."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import orjson
from coordination.access import Principal
from coordination.environment import Environment
from coordination.errors import StorageUnavailableError
from coordination.http.pages import encode_cursor
from coordination.ports.objects import ObjectNotFoundError, Objects
from coordination.queries import load_queries
from coordination.snapshots import manifest_key_beside
from records.manifest import Manifest, decode_manifest
from records.record import Record, read_records

from api.runs.excerpts import cut_text, make_excerpt, make_reference_excerpt
from api.runs.models import Excerpt, Excerpts, MissingExcerpts, Report, WorstResult

MAX_BYTES = 32 * 1024 * 1024
"""Read of a snapshot for one report: half of the largest there is."""

_QUERIES = load_queries("runs")
_PARALLEL_READS = 4
# More than an excerpt shows of a text, and enough to parse a short JSON value whole.
_BEGINNING_CHARACTERS = 4096

type Place = tuple[int, int]
"""Number of a record in the snapshot, and trial."""


@dataclass(frozen=True, slots=True)
class FoundExcerpts:
    """What was found for a report.

    Attributes
    ----------
    excerpts
        By place.
    code, detail
        Why others were not found, as `MissingExcerpts` has them; None when nothing stood in the way.
    """

    excerpts: dict[Place, Excerpts]
    code: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class _Range:
    """A shard of the snapshot that holds some of the records: its first record, its bytes [start, end)."""

    first_record: int
    start: int
    end: int
    record_nos: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Row:
    """A record and the byte at which its row begins."""

    record: Record
    position: int


def read_excerpts(environment: Environment, principal: Principal, project: str, run_id: UUID) -> FoundExcerpts | None:
    """Read beginnings of the texts of the worst records of a run, and of what its target answered.

    One transaction that reads, without a lock; then the manifest of the snapshot and the shards that hold the records,
    at most `MAX_BYTES` of them: how many records are shown makes no difference.

    Parameters
    ----------
    environment
        The means.
    principal
        Who asks: texts of records are for those who may read records (`datasets.read`).
    project, run_id
        Of the run.

    Returns
    -------
    FoundExcerpts or None
        None when the run has no report, or is unknown. What cannot be read is no error: the report matters more.
    """
    if not principal.is_allowed("datasets.read", project):
        return FoundExcerpts({}, "not_permitted", "This key may not read records: it has no permission datasets.read.")
    params: dict[str, Any] = {"tenant": project, "run_id": run_id}
    with environment.database.transaction(project, is_read=True) as transaction:
        run = transaction.fetch_one(_QUERIES["read_worst_records"], params)
        if run is None:
            return None
        worst = [WorstResult.model_validate(one) for one in run["worst"]]
        places = {(one.record_no, one.trial) for one in worst if one.record_no is not None}
        outputs: dict[Place, Excerpt] | None = None
        if run["target"] != "recorded" and places:
            rows = transaction.fetch_all(
                _QUERIES["list_output_beginnings"],
                params
                | {
                    "record_nos": [record_no for record_no, _ in places],
                    "trials": [trial for _, trial in places],
                    "characters": _BEGINNING_CHARACTERS,
                },
            )
            outputs = {(row["record_no"], row["trial"]): _read_output(row) for row in rows}
    try:
        rows, is_whole = _read_rows(environment.objects, run["path"], [one.record_no for one in worst])
    except ObjectNotFoundError:
        return FoundExcerpts({}, "records_gone", "The records of this run are no longer in the bucket.")
    except StorageUnavailableError:
        return FoundExcerpts({}, "storage_unavailable", "The bucket did not answer; read the report again.")
    dataset = f"/v1/projects/{project}/datasets/{run['sha256']}" if run["is_listed"] else None
    run_path = f"/v1/projects/{project}/runs/{run_id}"
    found = {
        place: Excerpts(
            input=make_excerpt(rows[place[0]].record.input),
            output=make_excerpt(rows[place[0]].record.output) if outputs is None else outputs.get(place),
            reference=make_reference_excerpt(rows[place[0]].record.reference),
            record_path=_page_of_one(f"{dataset}/records", "records", run["sha256"], rows[place[0]].position)
            if dataset
            else None,
            # The page after the trial before.
            output_path=_page_of_one(f"{run_path}/outputs", "outputs", place[0], place[1] - 1)
            if outputs is not None and place in outputs
            else None,
        )
        for place in places
        if place[0] in rows
    }
    if any(one.record_no is None for one in worst):
        return FoundExcerpts(found, "place_unknown", "The report is from before it noted where its records lie.")
    if not is_whole:
        return FoundExcerpts(found, "too_large", "The records lie in more than 32 MiB of the snapshot.")
    return FoundExcerpts(found)


def add_excerpts(report: Report, found: FoundExcerpts | None) -> Report:
    """Put what was found beside the worst results of a report, and say what was not. Pure."""
    if found is None:
        return report
    worst = [
        one.model_copy(update={"excerpts": found.excerpts.get((one.record_no, one.trial))})
        if one.record_no is not None
        else one
        for one in report.worst
    ]
    results = sum(one.excerpts is None for one in worst)
    missing = None
    if results and found.code is not None and found.detail is not None:
        missing = MissingExcerpts(results=results, code=found.code, detail=found.detail)
    return report.model_copy(update={"worst": worst, "excerpts_missing": missing})


def _read_rows(objects: Objects, path: str, record_nos: Iterable[int | None]) -> tuple[dict[int, _Row], bool]:
    """Return rows by number of the record, the first asked for first, and whether the bound left out none."""
    wanted = list(dict.fromkeys(record_no for record_no in record_nos if record_no is not None))
    if not wanted:
        return {}, True
    ranges = _find_ranges(decode_manifest(objects.read(manifest_key_beside(path))), wanted)
    chosen: list[_Range] = []
    left = MAX_BYTES
    for one in ranges:
        if one.end - one.start <= left:
            chosen.append(one)
            left -= one.end - one.start

    def read(part: _Range) -> bytes:
        return objects.read(path, part.start, part.end)

    rows: dict[int, _Row] = {}
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        for part, content in zip(chosen, pool.map(read, chosen), strict=True):
            rows |= _pick_rows(content, part)
    return rows, len(chosen) == len(ranges)


def _find_ranges(manifest: Manifest, record_nos: Sequence[int]) -> list[_Range]:
    """Return the shards that hold the records, in the order in which these ask for them."""
    ends = [*((shard.record, shard.offset) for shard in manifest.shards[1:]), (manifest.records, manifest.bytes)]
    found: dict[int, _Range] = {}
    for record_no in record_nos:
        at = next(at for at, (end, _) in enumerate(ends) if record_no < end)
        start = manifest.shards[at]
        before = found[at].record_nos if at in found else ()
        found[at] = _Range(start.record, start.offset, ends[at][1], (*before, record_no))
    return list(found.values())


def _pick_rows(content: bytes, part: _Range) -> dict[int, _Row]:
    lines = content.split(b"\n")
    rows: dict[int, _Row] = {}
    for record_no in part.record_nos:
        at = record_no - part.first_record
        (record,) = read_records(lines[at])
        rows[record_no] = _Row(record, part.start + sum(len(line) + 1 for line in lines[:at]))
    return rows


def _read_output(row: dict[str, Any]) -> Excerpt:
    beginning: str = row["beginning"]
    if row["is_text"] or len(beginning) >= _BEGINNING_CHARACTERS:
        return cut_text(beginning, is_cut=len(beginning) >= _BEGINNING_CHARACTERS)
    excerpt = make_excerpt(orjson.loads(beginning))
    return excerpt if excerpt is not None else cut_text(beginning)


def _page_of_one(path: str, kind: str, *position: Any) -> str:
    """Return the address of the page of one item after a position."""
    return f"{path}?{urlencode({'limit': 1, 'cursor': encode_cursor(kind, position)})}"
