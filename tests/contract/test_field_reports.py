"""The pages of field reports name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/decisions").glob("*-field-reports-*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_report_has_a_test_or_a_reason(page: Path) -> None:
    rows = [line.strip("|").split("|") for line in page.read_text().splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 1
    for report, tests, remark in rows:
        named = re.findall(r"`([\w/.]+)::(\w+)`", tests)
        assert named or len(remark.strip()) > 20, report
        for path, name in named:
            assert f"def {name}(" in (ROOT / "tests" / path).read_text(), f"{path}::{name}"
