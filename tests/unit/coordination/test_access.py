import itertools
import re
from typing import Any

import pytest
from coordination.access import (
    INSTALLATION_PERMISSIONS,
    PERMISSIONS,
    ROLES,
    Grant,
    Principal,
    generate_token,
    parse_token,
)
from pydantic import ValidationError


def principal(*grants: dict[str, Any]) -> Principal:
    return Principal("key:0", "test", [Grant.model_validate(grant) for grant in grants])


def test_generated_token_is_read_back_and_random() -> None:
    text, token = generate_token()
    assert re.fullmatch(r"ew_[0-9a-f]{16}_[0-9a-f]{64}", text)
    assert parse_token(text) == token
    assert generate_token()[0] != text


@pytest.mark.parametrize(
    "text",
    ["", "ew_", f"ew_{'0' * 16}", f"ew_{'0' * 16}_{'0' * 63}", f"ew_{'0' * 16}_{'0' * 65}", f"EW_{'0' * 16}_{'0' * 64}",
     f"ew_{'A' * 16}_{'0' * 64}", f" ew_{'0' * 16}_{'0' * 64}", f"ew_{'0' * 16}_{'0' * 64}\n"],
)  # fmt: skip
def test_text_of_another_form_is_no_token(text: str) -> None:
    assert parse_token(text) is None


def test_roles_contain_each_other_and_only_known_permissions() -> None:
    order = [ROLES[name] for name in ("viewer", "runner", "editor", "admin", "owner")]
    assert all(smaller < larger for smaller, larger in itertools.pairwise(order))
    assert ROLES["owner"] == PERMISSIONS


def test_deleting_and_reconciling_are_for_admins_and_owners() -> None:
    for permission in ("runs.delete", "datasets.delete", "idempotency.reconcile"):
        assert {name for name, role in ROLES.items() if permission in role} == {"admin", "owner"}


def test_permissions_of_the_installation_are_for_owners() -> None:
    assert {name for name, role in ROLES.items() if role & INSTALLATION_PERMISSIONS} == {"owner"}


@pytest.mark.parametrize(
    "grant",
    [
        {"project": "demo"},
        {"project": "demo", "role": "viewer", "permissions": ["evaluate"]},
        {"project": "demo", "role": "owner"},
        {"project": "demo", "permissions": ["keys.manage"]},
        {"project": "demo", "permissions": []},
        {"project": "demo", "permissions": ["runs.*"]},
        {"project": "**", "role": "viewer"},
        {"project": "", "role": "viewer"},
        {"project": "demo\n", "role": "viewer"},
        {"project": "demo", "role": "viewer", "extra": 1},
    ],
)
def test_grant_that_cannot_be_is_refused(grant: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Grant.model_validate(grant)


def test_grant_counts_for_its_project_only() -> None:
    caller = principal({"project": "demo", "role": "viewer"})
    assert caller.sees("demo")
    assert caller.is_allowed("runs.read", "demo")
    assert not caller.is_allowed("runs.create", "demo")
    assert not caller.sees("other")
    assert not caller.is_allowed("runs.read", "other")
    assert not caller.is_allowed("runs.read", None)


def test_grant_on_every_project_counts_everywhere_and_for_the_installation() -> None:
    caller = principal({"project": "*", "role": "owner"})
    assert caller.sees("anything")
    assert caller.is_allowed("runs.delete", "anything")
    assert caller.is_allowed("keys.manage", None)


def test_principal_without_grants_sees_nothing() -> None:
    assert not principal().sees("demo")


@pytest.mark.parametrize(
    ("own", "given", "may"),
    [
        ([{"project": "*", "role": "owner"}], {"project": "*", "role": "owner"}, True),
        ([{"project": "*", "role": "admin"}], {"project": "demo", "role": "admin"}, True),
        ([{"project": "*", "role": "admin"}], {"project": "*", "role": "owner"}, False),
        ([{"project": "demo", "role": "admin"}], {"project": "*", "role": "viewer"}, False),
        ([{"project": "demo", "role": "admin"}], {"project": "other", "role": "viewer"}, False),
        ([{"project": "demo", "role": "editor"}], {"project": "demo", "role": "runner"}, True),
        ([{"project": "demo", "role": "runner"}], {"project": "demo", "permissions": ["datasets.write"]}, False),
        (
            [{"project": "demo", "role": "viewer"}, {"project": "*", "permissions": ["runs.create"]}],
            {"project": "demo", "permissions": ["runs.read", "runs.create"]},
            True,
        ),
    ],
)
def test_nobody_gives_more_than_they_have(own: list[dict[str, Any]], given: dict[str, Any], may: bool) -> None:
    assert principal(*own).may_give(Grant.model_validate(given)) is may
