from typing import Annotated, Any

import pytest
from api.projects.models import UpdateProject
from coordination.errors import InvalidRequestError
from coordination.idempotency.fingerprint import fields_to_compare, fingerprint_request
from coordination.models import RequestModel
from pydantic import Field

REQUEST: dict[str, Any] = {
    "operation_id": "runs.create",
    "path": {"project": "demo"},
    "query": {"limit": 1},
    "body": {"a": 1, "b": [True, None, "x"]},
    "content_sha256": None,
}


def fingerprint(**changes: Any) -> bytes:
    return fingerprint_request(**(REQUEST | changes))


def test_fingerprint_is_the_same_for_the_same_request_in_another_order() -> None:
    assert fingerprint() == fingerprint(body={"b": [True, None, "x"], "a": 1})
    assert len(fingerprint()) == 32


def test_fingerprint_stays_what_it_was() -> None:
    # Keys outlive a deployment: a change of this value makes every live key a reused one.
    assert fingerprint_request("projects.create", {}, {}, {"id": "demo"}, None).hex() == (
        "7b7018cbc0c0ebd0946de5d0e69d68e82fa15321199bdd212acdee4acfa338b8"
    )


def test_1_and_1_point_0_are_one_number() -> None:
    assert fingerprint(body={"a": 1}) == fingerprint(body={"a": 1.0})


@pytest.mark.parametrize(
    "change",
    [
        {"operation_id": "runs.update"},
        {"path": {"project": "other"}},
        {"path": {"tenant": "demo"}},
        {"query": {"limit": 2}},
        {"query": {}},
        {"body": {"a": 1, "b": [None, True, "x"]}},
        {"body": {"a": "1", "b": [True, None, "x"]}},
        {"body": {"a": True, "b": [True, None, "x"]}},
        {"body": {"a": 1, "b": [True, None, "x"], "c": None}},
        {"body": None},
        {"content_sha256": "0" * 64},
    ],
)
def test_any_difference_makes_another_fingerprint(change: dict[str, Any]) -> None:
    assert fingerprint(**change) != fingerprint()


def test_paths_that_look_alike_when_joined_do_not_collide() -> None:
    assert fingerprint(path={"a": "x/y", "b": "z"}) != fingerprint(path={"a": "x", "b": "y/z"})


def test_query_and_path_do_not_stand_in_for_each_other() -> None:
    assert fingerprint(path={"a": "1"}, query={}) != fingerprint(path={}, query={"a": "1"})


@pytest.mark.parametrize("body", [{"a": float("inf")}, {"a": 2**70}])
def test_request_without_canonical_json_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        fingerprint(body=body)


class Part(RequestModel):
    """A part of a request."""

    weight: float = 1.0


class Before(RequestModel):
    """A request as one deployment knows it."""

    name: str
    limit: int = 50


class After(Before):
    """The same request after a deployment that added optional fields."""

    note: str | None = None
    parts: Annotated[list[Part], Field(default_factory=list[Part])]


def test_request_keeps_its_fingerprint_when_optional_fields_are_added() -> None:
    sent = '{"name": "a"}'
    assert fields_to_compare(Before.model_validate_json(sent)) == fields_to_compare(After.model_validate_json(sent))


@pytest.mark.parametrize("spelled", ['"limit": 50', '"note": null', '"parts": []'])
def test_default_that_is_written_out_is_the_same_request(spelled: str) -> None:
    written = After.model_validate_json(f'{{"name": "a", {spelled}}}')
    assert fields_to_compare(written) == fields_to_compare(After(name="a", parts=[]))


def test_value_that_is_no_default_is_another_request() -> None:
    plain = fields_to_compare(After(name="a", parts=[]))
    others = [After(name="a", limit=0, parts=[]), After(name="a", note="", parts=[]), After(name="a", parts=[Part()])]
    assert all(fields_to_compare(other) != plain for other in others)
    assert fields_to_compare(others[2]) != fields_to_compare(After(name="a", parts=[Part(weight=2.0)]))


@pytest.mark.parametrize(
    "sent",
    ['{"paused": false}', '{"description": ""}', '{"run_retention": null}', '{"quotas": {}}',
     '{"quotas": {"max_stored_runs": null}}'],
)  # fmt: skip
def test_field_that_is_sent_is_another_change_than_one_left_out(sent: str) -> None:
    change = fields_to_compare(UpdateProject.model_validate_json(sent))
    assert change == UpdateProject.model_validate_json(sent).model_dump(mode="json")
    assert change not in (
        {},
        fields_to_compare(UpdateProject.model_validate_json('{"quotas": {"max_dataset_bytes": null}}')),
    )
