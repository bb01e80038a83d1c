from typing import Any

import pytest
from coordination.errors import InvalidRequestError
from coordination.idempotency.fingerprint import fingerprint_request

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
