"""Samples of requests and JSON in the documents that no test types in are read as the service reads them.

README and the tutorials are run: tests/e2e/test_document_commands.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import api.operations
import pytest
from coordination.evaluator_requests import EvaluatorRequest, check_evaluators
from pydantic import BaseModel
from records.record import Record
from run_evaluation.function_scores import open_batch_scorer
from run_evaluation.targets import read_answer

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/decisions").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SAMPLES = [
    pytest.param(language, text, id=f"{path.stem}-{number}")
    for path in DOCUMENTS
    for number, (language, text) in enumerate(BLOCK.findall(path.read_text()))
    if language in ("sh", "json")
]


def is_answer_of_a_target(sample: dict[str, Any]) -> None:
    assert read_answer(json.dumps(sample).encode()).output == sample["output"]


def is_evaluator(sample: dict[str, Any]) -> None:
    _, faults = check_evaluators([EvaluatorRequest.model_validate(sample)], "")
    assert faults == []


def is_answer_of_a_scoring_function(sample: dict[str, Any]) -> None:
    def invoke(*_of: Any, **_within: Any) -> bytes:
        return json.dumps(sample).encode()

    def prepare(_seconds: float) -> None:
        pass

    functions = SimpleNamespace(prepare=prepare, invoke=invoke)
    params = {"function": "arn:aws:lambda:eu-central-1:123456789012:function:judge"}
    score = open_batch_scorer(cast("Any", SimpleNamespace(functions=functions)), "judge", params)
    batch = [(Record(id=result["record"], input="q", output="a"), 1) for result in sample["results"]]
    assert {one.status for one in score(batch)} <= {"scored", "skipped"}


READERS: dict[str, Callable[[dict[str, Any]], None]] = {
    "output": is_answer_of_a_target,
    "params": is_evaluator,
    "results": is_answer_of_a_scoring_function,
}


def read_json(text: str) -> None:
    sample = json.loads(text)
    (reader,) = [reader for member, reader in READERS.items() if member in sample]
    reader(sample)


def read_request(text: str) -> None:
    """Find the operation of a curl command by its path, and let the operation's model read the body."""
    match = re.search(r'"\$API(?P<path>/[^"?]*)".*?--json \'(?P<body>.*)\'', text, re.DOTALL)
    assert match, "neither run nor read: put it into a tutorial, or write it as curl … --json"
    (operation,) = [
        operation
        for operation in api.operations.OPERATIONS
        if operation.method == "POST" and operation.path_pattern.fullmatch(match["path"])
    ]
    body = cast("type[BaseModel]", operation.body).model_validate_json(match["body"])
    assert check_evaluators(cast("Any", body).evaluators, "/evaluators")[1] == []


@pytest.mark.parametrize(("language", "text"), SAMPLES)
def test_sample_is_what_the_service_takes(language: str, text: str) -> None:
    (read_json if language == "json" else read_request)(text)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_json, '{"name": "exact_match", "params": {"nonsense": 1}}'),
        (read_json, '{"name": "exact_match", "params": {}'),
        (read_json, '{"unknown": 1}'),
        (read_request, 'curl "$API/v1/projects/demo/runs" --json \'{"name": "x"}\''),
        (read_request, 'curl "$API/v1/projects/demo/none" --json \'{"name": "x"}\''),
        (read_request, "rm -rf /"),
    ],
)
def test_a_wrong_sample_is_found(read: Callable[[str], None], text: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        read(text)
