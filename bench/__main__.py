"""Run benchmarks and merge their figures into docs/benchmarks.json, of which docs/benchmarks.md is made.

    make bench                         all that is registered here
    .venv/bin/python -m bench B1 B3    some
    .venv/bin/python -m bench --table  only make the table again

A benchmark is a module with `NAMES`, the ids it measures, and `measure(names) -> {id: figures}`; figures are
`ratio` (as in the goal), `median`, `min`, `max`, `floor`, `peers`, `unit`, `machine`, `versions` and whatever else.
"""

import argparse
import importlib
import json
import os
import platform
from pathlib import Path
from typing import Any

MODULES = (
    "bench.keyed_writes",
    "bench.publish_dataset",
    "bench.evaluate_run",
    "bench.pulse_sources",
    "bench.sweep_tables",
)
DOCS = Path(__file__).parents[1] / "docs"
FIGURES = DOCS / "benchmarks.json"
TABLE = DOCS / "benchmarks.md"
GOALS = {
    "B1": ("keyed local write, p50, one client", "the same write unkeyed", "<= 1.15"),
    "B2": ("keyed writes per second, 16 clients, 16 scopes", "the same clients unkeyed", ">= 0.80"),
    "B3": (
        "Powertools idempotency on Redis (`appendfsync always`) and the same write, p50",
        "our keyed write",
        ">= 2",
    ),
    "B4": ("publish 100,000 rows of JSONL", "loads, dumps and SHA-256 of the same bytes", "<= 1.5"),
    "B5": ("publish 100,000 rows of Parquet", "read, dumps and SHA-256 of the same rows", "<= 1.3"),
    "B6": ("run of 100,000 records, three evaluators", "the scores in a plain loop and one COPY", "<= 3"),
    "B7": ("retention sweep, rows per second", "one DELETE of the same rows", ">= 0.6"),
    "B8": ("scheduling pulse, 10,000 sources", "a bare indexed SELECT", "<= 3"),
    "B9": ("init of each function in the runtime emulator", "importing its third-party packages", "<= 1.3"),
    "B10": ("unzipped size of a function and its layers", "its budget", "<= 1"),
}


def describe_machine() -> str:
    """Say what this ran on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    load = f"load {os.getloadavg()[0]:.1f} before the start"
    return f"{os.cpu_count()} x {model}, {platform.system()} {platform.release()}, {load}"


def read_figures() -> dict[str, Any]:
    """Return the figures that are there."""
    return json.loads(FIGURES.read_text()) if FIGURES.exists() else {}


def make_table(figures: dict[str, Any]) -> str:
    """Write the page."""
    lines = [
        "# Benchmarks",
        "",
        "Made of `benchmarks.json` by `python -m bench --table`; measured by `make bench`. Ratios as in the goals.",
        "",
        "| id | work | against | goal | ratio | median (min to max) | floor | peers |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in sorted(figures, key=lambda one: int("".join(filter(str.isdigit, one.split()[0])))):
        one = figures[name]
        work, against, goal = GOALS.get(name, GOALS.get(name.split()[0], (name, "", "")))
        unit = one.get("unit", "")
        peers = ", ".join(f"{peer} {value}" for peer, value in one.get("peers", {}).items()) or "-"
        spread = f"{one['median']} {unit} ({one['min']} to {one['max']})"
        cells = [name, work, against, goal, f"**{one['ratio']}**", spread, f"{one['floor']} {unit}", peers]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Where", ""]
    for name, one in figures.items():
        versions = ", ".join(f"{package} {version}" for package, version in one.get("versions", {}).items())
        lines.append(f"- {name}: {one['machine']}; {versions}" + (f". {one['note']}" if "note" in one else ""))
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, merge, write."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", help="ids; all by default")
    parser.add_argument("--table", action="store_true", help="make the table of the figures that are there")
    arguments = parser.parse_args()
    machine = describe_machine()
    is_busy = os.getloadavg()[0] > (os.cpu_count() or 1) / 2
    busy = "The machine was busy with other work: to be repeated on a quiet one. " if is_busy else ""
    new: dict[str, Any] = {}
    if not arguments.table:
        for module_name in MODULES:
            module = importlib.import_module(module_name)
            names = [name for name in module.NAMES if not arguments.names or name in arguments.names]
            for name, measured in module.measure(names).items() if names else ():
                note = busy + measured.get("note", "")
                new[name] = measured | {"machine": machine} | ({"note": note} if note else {})
                print(f"{name}: {json.dumps(new[name], ensure_ascii=False)}")
    # Read only now: others may have measured meanwhile.
    figures = read_figures() | new
    if new:
        DOCS.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")
    TABLE.write_text(make_table(figures))


if __name__ == "__main__":
    main()
