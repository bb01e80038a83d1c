"""Rows that other systems lost, split or changed, as their users reported it."""

import json
from io import BytesIO
from typing import Any

import pytest
from dataset_conversion.conversion import convert


def publish(source: bytes) -> list[dict[str, Any]]:
    written = BytesIO()
    convert(source, "jsonl", written.write)
    return [json.loads(line) for line in written.getvalue().splitlines()]


def to_lines(*rows: dict[str, Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def test_row_with_a_list_of_choices_is_one_record() -> None:
    (row,) = publish(to_lines({"id": "a", "input": {"choices": ["a", "b", "c", "d"]}}))
    assert row["input"] == {"choices": ["a", "b", "c", "d"]}


@pytest.mark.parametrize(
    "row",
    [
        {"id": "a", "input": "q", "context": ["a | b", "c"]},
        {"id": "a", "input": "q", "metadata": {"ok": True, "x": None}},
        {"id": "a", "input": "q", "metadata": {"name": "n", "comments": "c", "nested": [[1, []], {"": None}]}},
        {"id": "a", "input": [["nested", ["lists"]], []], "output": [], "reference": [[1, 2], "x"]},
    ],
)
def test_what_is_published_and_published_again_is_the_same(row: dict[str, Any]) -> None:
    once = publish(to_lines(row))
    assert once == [row]
    assert publish(to_lines(*once)) == once
