"""B4 and B5: a file of 100,000 rows to one canonical object on the local disk, beside the least that it could take.

The floor reads, writes and digests the same bytes without checking anything; peers read the file and write JSON lines
in the way each has for that, and digest them. Every run is a process of its own; runs take turns, so that a busy
machine meets all of them alike. Processor time is compared, which others' work disturbs least; the time on the clock
stands beside it. Ours converts in one process (for Parquet one that
decodes, and one that digests what it answers); DuckDB and polars are given two threads. What importing takes is counted
in neither, but for pyarrow in Parquet: ours begins a process that imports it.
"""

import hashlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

NAMES = ("B4", "B5")
ROWS = 100_000
ROUNDS = 7
FILES = {"B4": ("jsonl", "jsonl"), "B5": ("parquet", "zstd.parquet"), "B5 snappy": ("parquet", "snappy.parquet")}


def make_rows() -> list[dict[str, Any]]:
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 9))) for _ in range(3000)] + ["café", "数据", "🙂"]

    def text(count: int) -> str:
        return " ".join(chance.choices(words, k=count))

    return [
        {
            "id": f"row-{number:06}",
            "input": {"messages": [{"role": "user", "content": text(35)}]},
            "expected": text(15),
            "context": [text(12), text(12)],
            "metadata": {"score": round(chance.random(), 4), "number": number, "ok": number % 3 > 0},
            "tags": [chance.choice(words), chance.choice(words)],
        }
        for number in range(ROWS)
    ]


def make_files(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = make_rows()
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    table = pa.Table.from_pylist(rows)
    for codec in ("zstd", "snappy"):
        pq.write_table(table, folder / f"rows.{codec}.parquet", compression=codec, row_group_size=10_000)


def run_floor(file_format: str, source: Path, target: Path) -> float:
    import orjson

    options = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    digest = hashlib.sha256()
    if file_format == "jsonl":
        started = time.perf_counter()
        with source.open("rb") as lines, target.open("wb") as out:
            for line in lines:
                row = orjson.dumps(orjson.loads(line), None, options)
                digest.update(row)
                out.write(row)
        return time.perf_counter() - started
    started = time.perf_counter()
    import pyarrow.parquet as pq

    with target.open("wb") as out:
        for batch in pq.ParquetFile(source).iter_batches(batch_size=1024):
            for values in batch.to_pylist():
                row = orjson.dumps(values, None, options)
                digest.update(row)
                out.write(row)
    return time.perf_counter() - started


def run_ours(file_format: str, source: Path, target: Path) -> float:
    from dataset_conversion.conversion import Limits, convert

    limits = Limits(input_bytes=1 << 30, output_bytes=1 << 30)
    started = time.perf_counter()
    with source.open("rb") as file, target.open("wb") as out:
        convert(file, "parquet" if file_format == "parquet" else "jsonl", out.write, limits=limits)
    return time.perf_counter() - started


def read_peak_kib() -> int:
    # ru_maxrss begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def digest_of(target: Path) -> str:
    with target.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest()


def timed(work: Callable[[], object], target: Path) -> float:
    started = time.perf_counter()
    work()
    digest_of(target)
    return time.perf_counter() - started


def run_datasets(file_format: str, source: Path, target: Path) -> float:
    import datasets

    datasets.disable_progress_bars()
    make: Any = datasets.Dataset.from_json if file_format == "jsonl" else datasets.Dataset.from_parquet
    with tempfile.TemporaryDirectory(dir=target.parent) as cache:
        return timed(lambda: make(str(source), cache_dir=cache).to_json(str(target)), target)


def run_pandas(file_format: str, source: Path, target: Path) -> float:
    import pandas

    if file_format == "jsonl":
        read: Any = lambda: pandas.read_json(source, lines=True, dtype=False, convert_dates=False)  # noqa: E731
    else:
        read = lambda: pandas.read_parquet(source)  # noqa: E731
    return timed(lambda: read().to_json(target, orient="records", lines=True), target)


def run_pydantic(_: str, source: Path, target: Path) -> float:
    from pydantic import BaseModel

    class Message(BaseModel):
        role: str
        content: str

    class Input(BaseModel):
        messages: list[Message]

    class Row(BaseModel):
        id: str
        input: Input
        expected: str
        context: list[str]
        metadata: dict[str, Any]
        tags: list[str]

    def work() -> None:
        with source.open("rb") as lines, target.open("w", encoding="utf-8") as out:
            for line in lines:
                out.write(Row.model_validate_json(line).model_dump_json() + "\n")

    return timed(work, target)


def run_duckdb(file_format: str, source: Path, target: Path) -> float:
    import duckdb

    reader = "read_json" if file_format == "jsonl" else "read_parquet"
    duckdb.sql("SET threads = 2")
    statement = f"COPY (SELECT * FROM {reader}('{source}')) TO '{target}' (FORMAT json)"
    return timed(lambda: duckdb.sql(statement), target)


def run_polars(file_format: str, source: Path, target: Path) -> float:
    os.environ["POLARS_MAX_THREADS"] = "2"
    import polars

    read: Any = polars.read_ndjson if file_format == "jsonl" else polars.read_parquet
    return timed(lambda: read(source).write_ndjson(target), target)


def run_read_table(_: str, source: Path, target: Path) -> float:
    import orjson
    import pyarrow.parquet as pq

    options = orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE

    def work() -> None:
        with target.open("wb") as out:
            for row in pq.read_table(source).to_pylist():
                out.write(orjson.dumps(row, None, options))

    return timed(work, target)


RUNNERS: dict[str, Callable[[str, Path, Path], float]] = {
    "floor": run_floor,
    "ours": run_ours,
    "datasets": run_datasets,
    "pandas": run_pandas,
    "pydantic": run_pydantic,
    "duckdb": run_duckdb,
    "polars": run_polars,
    "read_table": run_read_table,
}
# Runs of these take long, and are far from ours.
SLOW = ("datasets", "pandas", "pydantic", "read_table")
PEERS = {
    "jsonl": ("datasets", "pandas", "pydantic", "duckdb", "polars"),
    "parquet": ("datasets", "read_table", "duckdb", "polars"),
}


def run_once(who: str, file_format: str, source: str, target: str) -> None:
    """Do one run and say what it took."""
    import dataset_conversion.conversion  # noqa: F401 - what importing takes is not counted

    before, cpu_before = read_peak_kib(), time.process_time()
    seconds = RUNNERS[who](file_format, Path(source), Path(target))
    own, children = (resource.getrusage(which) for which in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime - cpu_before
    rss = read_peak_kib() - before if file_format == "jsonl" else read_peak_kib() + children.ru_maxrss
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "rss_mib": rss / 1024}))


def measure_file(folder: Path, name: str, rounds: int) -> dict[str, Any]:
    """Measure one file: ours, the floor and the peers that are near in every round, slow peers in the first two."""
    file_format, suffix = FILES[name]
    source = folder / f"rows.{suffix}"
    taken: dict[str, list[dict[str, float]]] = {}
    for turn in range(rounds):
        peers = [peer for peer in PEERS[file_format] if turn < 2 or peer not in SLOW]
        for who in ("floor", "ours", *peers):
            arguments = ["-m", "bench.publish_dataset", who, file_format, str(source), str(folder / "out.jsonl")]
            done = subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
            taken.setdefault(who, []).append(json.loads(done.stdout.splitlines()[-1]))
    seconds = {who: [run["seconds"] for run in runs] for who, runs in taken.items()}
    cpu = {who: [run["cpu_seconds"] for run in runs] for who, runs in taken.items()}
    median = {who: statistics.median(values) for who, values in seconds.items()}
    return {
        "ratio": round(statistics.median(cpu["ours"]) / statistics.median(cpu["floor"]), 3),
        "wall_ratio": round(median["ours"] / median["floor"], 3),
        "best_wall_ratio": round(min(seconds["ours"]) / min(seconds["floor"]), 3),
        "median": round(median["ours"], 3),
        "min": round(min(seconds["ours"]), 3),
        "max": round(max(seconds["ours"]), 3),
        "floor": round(median["floor"], 3),
        "cpu": round(statistics.median(cpu["ours"]), 3),
        "floor_cpu": round(statistics.median(cpu["floor"]), 3),
        "unit": "s",
        "rss_mib": round(max(run["rss_mib"] for run in taken["ours"]), 1),
        "floor_rss_mib": round(max(run["rss_mib"] for run in taken["floor"]), 1),
        "source_bytes": source.stat().st_size,
        "peers": {who: describe(seconds[who], cpu[who], taken[who]) for who in PEERS[file_format]},
        "versions": {
            package: version(package)
            for package in ("orjson", "msgspec", "pyarrow", "datasets", "pandas", "pydantic", "duckdb", "polars")
        },
    }


def describe(seconds: list[float], cpu: list[float], runs: list[dict[str, float]]) -> str:
    """Say what the runs of one took."""
    rss = max(run["rss_mib"] for run in runs)
    return f"{statistics.median(seconds):.2f} s (processor {statistics.median(cpu):.2f} s, {rss:.0f} MiB)"


def measure(names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the figures of B4 and B5; Parquet in both codecs, the worse ratio being that of B5."""
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))
        if "B4" in names:
            one = measure_file(Path(folder), "B4", ROUNDS)
            figures["B4"] = one | {"note": note_of(one, "over import")}
        if "B5" in names:
            zstd, snappy = (measure_file(Path(folder), name, ROUNDS) for name in ("B5", "B5 snappy"))
            worse = max(zstd, snappy, key=lambda one: one["ratio"])
            codecs = ", ".join(
                f"{codec} {one['ratio']} (clock {one['wall_ratio']})"
                for codec, one in (("zstd", zstd), ("snappy", snappy))
            )
            figures["B5"] = worse | {"codecs": {"zstd": zstd, "snappy": snappy}}
            figures["B5"]["note"] = f"{note_of(worse, 'of both processes with all they import')}; {codecs}"
    return figures


def note_of(one: dict[str, Any], rss_of: str) -> str:
    """Say what the ratio is of."""
    return (
        f"The ratio is of processor time, {one['cpu']} s to {one['floor_cpu']} s; on the clock {one['wall_ratio']}, "
        f"best of all runs {one['best_wall_ratio']}; "
        f"memory {one['rss_mib']} MiB {rss_of}"
    )


if __name__ == "__main__":
    run_once(*sys.argv[1:])
