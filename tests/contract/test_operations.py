from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import api.operations
import dataset_conversion.operations
import orjson
import pytest
import run_evaluation.operations
import yaml
from coordination.access import PERMISSIONS
from coordination.http.openapi import build_openapi
from coordination.http.operation import LocalWrite, Operation, RemoteWrite

ROOT = Path(__file__).parents[2]
ROUTED = {
    "DatasetConversionFunction": dataset_conversion.operations.OPERATIONS,
    "RunEvaluationFunction": run_evaluation.operations.OPERATIONS,
}
OPERATIONS: list[Operation] = [*api.operations.OPERATIONS, *(one for some in ROUTED.values() for one in some)]


class Template(yaml.SafeLoader):
    """Reads the template; what an intrinsic function would make is of no interest here."""


def ignore(_loader: yaml.SafeLoader, _suffix: str, _node: yaml.Node) -> None:
    """Read an intrinsic function as null."""


Template.add_multi_constructor("!", ignore)


def http_routes(template: dict[str, Any], function: str) -> set[tuple[str, str]]:
    events = template["Resources"][function]["Properties"]["Events"].values()
    routes = (event["Properties"] for event in events if event["Type"] == "HttpApi")
    return {(route["Method"], route["Path"]) for route in routes if "Path" in route}


def test_ids_are_unique_and_routes_too() -> None:
    assert [name for name, count in Counter(one.id for one in OPERATIONS).items() if count > 1] == []
    shapes = Counter((one.method, re.sub(r"\{\w+\}", "{}", one.path)) for one in OPERATIONS)
    assert [shape for shape, count in shapes.items() if count > 1] == []


def test_every_write_declares_its_idempotency_and_no_read_does() -> None:
    for one in OPERATIONS:
        is_write = isinstance(one.idempotency, LocalWrite | RemoteWrite)
        assert is_write == (one.method != "GET"), one.id


def test_remote_write_names_its_effect_boundary_and_what_it_needs() -> None:
    remote = [one.idempotency for one in OPERATIONS if isinstance(one.idempotency, RemoteWrite)]
    for contract in remote:
        assert len(contract.effect_boundary) > 10
        assert 0 < contract.needed_seconds < 30
        assert contract.reserved_bytes > 0


def test_write_without_a_contract_and_read_with_one_cannot_be_declared() -> None:
    read = next(one for one in OPERATIONS if one.method == "GET")
    write = next(one for one in OPERATIONS if one.method == "POST")
    with pytest.raises(ValueError, match="idempotency"):
        replace(read, idempotency=LocalWrite())
    with pytest.raises(ValueError, match="idempotency"):
        replace(write, idempotency=None)


def test_every_operation_says_what_it_does_and_answers() -> None:
    for one in OPERATIONS:
        assert re.fullmatch(r"[A-Z].+\.", one.summary), one.id
        assert one.responses, one.id
        assert one.permission is None or one.permission in PERMISSIONS, one.id
        assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", one.id), one.id


@pytest.mark.parametrize("function", list(ROUTED))
def test_routes_of_the_template_are_the_declared_operations(function: str) -> None:
    template = yaml.load((ROOT / "template.yaml").read_text(), Template)
    declared = {(one.method, one.path) for one in ROUTED[function]}
    assert http_routes(template, function) == declared


def test_everything_else_goes_to_the_api() -> None:
    template = yaml.load((ROOT / "template.yaml").read_text(), Template)
    assert http_routes(template, "ApiFunction") == set()
    events = template["Resources"]["ApiFunction"]["Properties"]["Events"].values()
    assert [event["Type"] for event in events if event["Type"] != "ScheduleV2"] == ["HttpApi"]


def test_openapi_document_that_is_served_is_made_of_the_declarations() -> None:
    served = orjson.loads(files("api.reference").joinpath("openapi.json").read_bytes())
    assert served == orjson.loads(orjson.dumps(build_openapi(OPERATIONS, api.operations.PAGES)))
