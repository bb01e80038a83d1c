"""A short run of each fuzzer, from its small corpus and with a fixed seed. Longer ones: `make fuzz`."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
RUNS = 4000

pytest.importorskip("atheris", reason="atheris has no wheel for this platform", exc_type=ImportError)


@pytest.mark.parametrize(("fuzzer", "corpus"), [("fuzz_parquet_pages.py", "corpus"), ("fuzz_cron.py", "cron_corpus")])
def test_a_short_run_finds_nothing(tmp_path: Path, fuzzer: str, corpus: str) -> None:
    # New inputs go into the first folder; the corpus itself stays as it is.
    new = tmp_path / "new"
    new.mkdir()
    options = [f"-runs={RUNS}", "-seed=1", "-max_len=4096", "-rss_limit_mb=1024", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, str(FOLDER / fuzzer), str(new), str(FOLDER / corpus), *options]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
