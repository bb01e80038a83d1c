"""Operation ids are part of every fingerprint: frozen in operation_ids.json, whatever is renamed in the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import api.operations
import dataset_conversion.operations
import orjson
import pytest
import run_evaluation.operations
from coordination.http.operation import Answer, LocalWrite, Operation
from coordination.idempotency.fingerprint import fingerprint_request

FROZEN: dict[str, str] = orjson.loads(Path(__file__).with_name("operation_ids.json").read_bytes())
OPERATIONS = [
    *api.operations.OPERATIONS, *dataset_conversion.operations.OPERATIONS, *run_evaluation.operations.OPERATIONS
]  # fmt: skip


def test_no_operation_has_lost_or_changed_its_id() -> None:
    declared = {one.id: f"{one.method} {one.path}" for one in OPERATIONS}
    lost = {name: route for name, route in FROZEN.items() if declared.get(name) != route}
    assert lost == {}, "an id is never changed or taken away while keys bound to it may be retried (7 days)"


def test_every_operation_is_frozen() -> None:
    new = {one.id: f"{one.method} {one.path}" for one in OPERATIONS if one.id not in FROZEN}
    assert new == {}, "add these to tests/contract/operation_ids.json"


def test_fingerprint_of_a_request_is_what_it_was() -> None:
    fingerprint = fingerprint_request(
        "projects.create", {"project": "demo"}, {"limit": 50}, {"b": [1, "ä"], "a": 1.5}, None
    )
    assert fingerprint.hex() == "1371354831f1e4ba530a8b291332e6f07671c75c7c2980a2e12ebfe0cc71c7a3"


@pytest.mark.parametrize(
    ("method", "idempotency"), [("POST", None), ("PATCH", None), ("DELETE", None), ("GET", LocalWrite())]
)
def test_write_without_a_contract_and_read_with_one_cannot_be_declared(method: Any, idempotency: Any) -> None:
    def handle(*_: Any) -> Answer:
        return Answer(200)

    with pytest.raises(ValueError, match="a write declares its idempotency, a read has none"):
        Operation(id="test.one", method=method, path="/v1/ones", summary="One.", idempotency=idempotency, handle=handle)
