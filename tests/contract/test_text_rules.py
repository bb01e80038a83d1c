"""No refusal shows a regular expression: every pattern of the API has words, and its examples are taken."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coordination.text_rules import explain_pattern

DOCUMENT = json.loads((Path(__file__).parents[2] / "functions/api/api/reference/openapi.json").read_text())
# Of cursors: it is for generators of requests and refuses nothing itself.
ONLY_IN_THE_DOCUMENT = {"^[A-Za-z0-9_-]*$"}


def patterns(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        for value in node.values():
            yield from patterns(value)
    elif isinstance(node, list):
        for value in node:
            yield from patterns(value)


PATTERNS = sorted(set(patterns(DOCUMENT)) - ONLY_IN_THE_DOCUMENT)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_explained_without_being_shown(pattern: str) -> None:
    rule = explain_pattern(pattern)
    assert rule is not None, "coordination.text_rules needs words for it"
    assert not re.search(r"[\\^$\[\]{}|+]", rule)


@pytest.mark.parametrize("pattern", [pattern for pattern in PATTERNS if "such as" in str(explain_pattern(pattern))])
def test_an_example_is_taken(pattern: str) -> None:
    examples = str(explain_pattern(pattern)).rpartition("such as ")[2].split(" or ")
    assert [example for example in examples if not re.search(pattern, example)] == []


def test_a_choice_names_what_there_is_to_choose() -> None:
    assert explain_pattern("^(queued|failed)$") == "must be one of queued, failed"
    assert explain_pattern("^(a|b)?$") is None
