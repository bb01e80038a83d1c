"""The routines and the adoption on Debian's PostgreSQL 15, the oldest server that has what the schema needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BINARIES = Path("/usr/lib/postgresql/15/bin")
TESTS = ("tests/integration/jobengine/test_routines.py", "tests/integration/schema_migration/test_adoption.py")


@pytest.mark.long
@pytest.mark.postgres15
def test_routines_and_adoption_hold_on_postgresql_15() -> None:
    if not (BINARIES / "postgres").exists():
        pytest.skip("PostgreSQL 15 is not installed (Debian: apt-get install postgresql-15)")
    version = subprocess.run([BINARIES / "postgres", "--version"], capture_output=True, check=True, text=True).stdout
    assert " 15." in version
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *TESTS],
        env=os.environ | {"EVALWARD_TEST_POSTGRES": str(BINARIES)},
        cwd=ROOT,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
