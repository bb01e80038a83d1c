"""B4 and B5: a file of 100,000 rows to one canonical object on the local disk, beside the least that it could take.

The floor reads, writes and digests the same bytes without checking anything. Every run is a process of its own; runs
take turns, so that a busy machine meets all of them alike. Prints a table, and JSON with ``--json``.

    .venv/bin/python bench/publish_dataset.py [--rounds 5] [--json]
"""

import argparse
import hashlib
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROWS = 100_000
RUNS = {
    "B4": ("jsonl", "jsonl"),
    "B5 zstd": ("parquet", "zstd.parquet"),
    "B5 snappy": ("parquet", "snappy.parquet"),
}
GOALS = {"B4": 1.5, "B5 zstd": 1.3, "B5 snappy": 1.3}


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


def run_once(who: str, file_format: str, source: str, target: str) -> None:
    import dataset_conversion.conversion  # noqa: F401 - what importing takes is not counted

    before = read_peak_kib()
    run = run_floor if who == "floor" else run_ours
    seconds = run(file_format, Path(source), Path(target))
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    rss = read_peak_kib() - before if file_format == "jsonl" else read_peak_kib() + children.ru_maxrss
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "rss_mib": rss / 1024}))


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, (file_format, suffix) in RUNS.items():
        source = folder / f"rows.{suffix}"
        taken: dict[str, list[dict[str, float]]] = {"floor": [], "ours": []}
        for _ in range(rounds):
            for who, measured in taken.items():
                arguments = ["--run", who, file_format, str(source), str(folder / "out.jsonl")]
                done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, check=True)
                measured.append(json.loads(done.stdout))
        seconds = {who: [run["seconds"] for run in measured] for who, measured in taken.items()}
        ratio = statistics.median(seconds["ours"]) / statistics.median(seconds["floor"])
        cpu = {who: statistics.median(run["cpu_seconds"] for run in measured) for who, measured in taken.items()}
        results[name] = {
            "ratio": round(ratio, 3),
            "goal": GOALS[name],
            "median": round(statistics.median(seconds["ours"]), 3),
            "min": round(min(seconds["ours"]), 3),
            "max": round(max(seconds["ours"]), 3),
            "floor": round(statistics.median(seconds["floor"]), 3),
            "floor_min": round(min(seconds["floor"]), 3),
            "cpu_ratio": round(cpu["ours"] / cpu["floor"], 3),
            "rss_mib": round(max(run["rss_mib"] for run in taken["ours"]), 1),
            "source_bytes": source.stat().st_size,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "versions": {name: version(name) for name in ("orjson", "msgspec", "pyarrow")}
            | {"python": platform.python_version()},
        }
    return results


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--run", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_once(*arguments.run)
        return
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))
        results = measure(Path(folder), arguments.rounds)
    if arguments.json:
        print(json.dumps(results, indent=1))
        return
    print(f"{'':10} {'floor s':>8} {'ours s':>8} {'min-max':>15} {'ratio':>6} {'goal':>5} {'cpu':>6} {'MiB':>6}")
    for name, result in results.items():
        span = f"{result['min']:.3f}-{result['max']:.3f}"
        print(
            f"{name:10} {result['floor']:8.3f} {result['median']:8.3f} {span:>15} {result['ratio']:6.2f} "
            f"{result['goal']:5.2f} {result['cpu_ratio']:6.2f} {result['rss_mib']:6.1f}"
        )


if __name__ == "__main__":
    main()
