"""`evalward-local demo`: ends with 0 when every step did what it says, else with 1 and the step that did not."""

import json
import os
import subprocess
import sys
from pathlib import Path

from evalward_local import demo_sample
from evalward_local.stack_file import StackFile, write_stack_file

PATIENCE_SECONDS = 180


def run_demo(folder: Path) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "evalward_local", "demo", "--state", str(folder)]
    return subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=False, cwd=folder)


def test_demo_tells_the_main_job_in_plain_lines(tmp_path: Path) -> None:
    done = run_demo(tmp_path)

    text = done.stdout.decode()
    assert done.returncode == 0, text
    assert done.stderr == b""
    assert all(character.isprintable() or character == "\n" for character in text)
    steps = [line for line in text.splitlines() if line[:1].isdigit()]
    assert [step.partition(".")[0] for step in steps] == [str(number) for number in range(1, 14)]
    assert "Idempotency-Replayed: true, the same body byte for byte; still one run" in text
    assert "422 idempotency_key_reused" in text
    assert "masked before anything was stored: email 8, iban 8, provider_key 8" in text
    assert "the next window was empty: decided, and no run" in text
    assert "the same pulse again: nothing is due" in text
    assert "doctor.jobengine.capacity.budget" in text
    for metric in ("exact_match", "token_f1", "answered", "latency"):
        assert f"worst of {metric}: ticket-" in text
    assert "answered  I am sorry, I do not know." in text
    report = json.loads((tmp_path / "report.json").read_text())
    means = {metric["id"]: metric["mean"] for metric in report["metrics"]}
    # Written down once: the sample and the evaluators are what they were.
    assert {name: round(mean, 6) for name, mean in means.items()} == {
        "exact_match": 0.497326,
        "token_f1": 0.754981,
        "answered": 0.955,
        "latency": 965.389744,
    }
    assert (tmp_path / "logs" / "RunEvaluationFunction.log").exists()
    assert not (tmp_path / "stack.json").exists()


def test_demo_that_cannot_go_on_names_the_step_and_what_it_saw(tmp_path: Path) -> None:
    nobody = StackFile(
        api_url="",
        control_url="",
        admin_key="",
        database_url="",
        superuser_url="",
        pg_bin_dir="",
        bucket="",
        aws_endpoint_url="",
        region="",
        pid=os.getpid(),
        functions=(),
    )
    write_stack_file(tmp_path, nobody)

    done = run_demo(tmp_path)

    assert done.returncode == 1
    text = done.stdout.decode()
    assert "FAILED at step 0, preparation" in text
    assert f"another stack uses {tmp_path} (pid {os.getpid()})" in text


def test_sample_is_the_same_in_both_formats() -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = demo_sample.parse_rows(demo_sample.read_sample())

    table = pq.read_table(pa.BufferReader(demo_sample.make_parquet(rows)))

    assert table.num_rows == len(rows) == 200
    assert [without_nulls(row) for row in table.to_pylist()] == rows


def without_nulls(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if value is not None}
