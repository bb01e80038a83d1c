"""Access: keys, grants, permissions and roles.

A key is `ew_<16 hex id>_<64 hex secret>`; the secret is 256 random bits and only its SHA-256 is stored. A key has
grants; a grant names a project (or `*`) and permissions, or a role that stands for a fixed list of them. There is no
wildcard permission, so that a new one never slips into an old grant.
"""

import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

type Permission = Literal[
    "projects.manage",
    "keys.manage",
    "datasets.read",
    "datasets.write",
    "datasets.delete",
    "runs.read",
    "runs.create",
    "runs.cancel",
    "runs.label",
    "runs.delete",
    "evaluate",
    "sources.read",
    "sources.write",
    "webhooks.read",
    "webhooks.write",
    "idempotency.reconcile",
    "audit.read",
    "ops.health",
]
type Role = Literal["viewer", "runner", "editor", "admin", "owner"]

PERMISSIONS: frozenset[str] = frozenset(get_args(Permission.__value__))
INSTALLATION_PERMISSIONS: frozenset[str] = frozenset({"projects.manage", "keys.manage", "ops.health", "audit.read"})
"""Count only in a grant whose project is `*`."""

_VIEWER = frozenset({"datasets.read", "runs.read", "sources.read", "webhooks.read"})
_RUNNER = _VIEWER | {"runs.create", "runs.cancel", "runs.label", "evaluate"}
_EDITOR = _RUNNER | {"datasets.write", "sources.write", "webhooks.write"}
_ADMIN = _EDITOR | {"datasets.delete", "runs.delete", "idempotency.reconcile"}
ROLES: dict[str, frozenset[str]] = {
    "viewer": _VIEWER,
    "runner": _RUNNER,
    "editor": _EDITOR,
    "admin": _ADMIN,
    "owner": _ADMIN | INSTALLATION_PERMISSIONS,
}

EVERY_PROJECT = "*"
PROJECT_ID = r"^[a-z0-9][a-z0-9-]{0,62}$"
_TOKEN = re.compile(r"ew_([0-9a-f]{16})_([0-9a-f]{64})")


class Grant(BaseModel):
    """What a key may do, and where."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project: Annotated[
        str, Field(pattern=rf"^\*$|{PROJECT_ID}", description="project id, or `*` for every project", examples=["demo"])
    ]
    permissions: Annotated[list[Permission] | None, Field(min_length=1, description="names of permissions")] = None
    role: Annotated[Role | None, Field(description="a fixed list of permissions")] = None

    @model_validator(mode="after")
    def _has_one_of_both(self) -> Self:
        if (self.permissions is None) == (self.role is None):
            raise ValueError("give either permissions or role")
        if self.project != EVERY_PROJECT and (self.names & INSTALLATION_PERMISSIONS):
            names = ", ".join(sorted(self.names & INSTALLATION_PERMISSIONS))
            raise ValueError(f"{names} count only in a grant whose project is *")
        return self

    @property
    def names(self) -> frozenset[str]:
        """The permissions this grant lists."""
        return ROLES[self.role] if self.role is not None else frozenset(self.permissions or ())


@dataclass(frozen=True, slots=True)
class Principal:
    """Who was authenticated.

    Attributes
    ----------
    id
        `key:<key id>`.
    name
        The key's name.
    grants
        What it may do.
    """

    id: str
    name: str
    grants: Sequence[Grant]

    def sees(self, project: str) -> bool:
        """Tell whether any grant covers the project."""
        return any(grant.project in (project, EVERY_PROJECT) for grant in self.grants)

    def is_allowed(self, permission: Permission, project: str | None) -> bool:
        """Tell whether a grant lists the permission for the project (None: for the installation)."""
        return any(
            permission in grant.names and (grant.project == EVERY_PROJECT or grant.project == project)
            for grant in self.grants
        )

    def may_give(self, grant: Grant) -> bool:
        """Tell whether this principal holds all that a grant would give, where it would give it."""
        where = None if grant.project == EVERY_PROJECT else grant.project
        return all(
            any(name in own.names and own.project in (EVERY_PROJECT, where) for own in self.grants)
            for name in grant.names
        )


@dataclass(frozen=True, slots=True)
class Token:
    """A presented or a new key.

    Attributes
    ----------
    key_id
        16 hex digits.
    secret_sha256
        SHA-256 over the 64 hex digits of the secret as text.
    """

    key_id: str
    secret_sha256: bytes


def parse_token(text: str) -> Token | None:
    """Read `ew_<id>_<secret>`; None when it has not that form."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        return None
    return Token(match[1], hashlib.sha256(match[2].encode("ascii")).digest())


def generate_token() -> tuple[str, Token]:
    """Make a new key: its text, to be shown once, and what is stored of it."""
    text = f"ew_{secrets.token_hex(8)}_{secrets.token_hex(32)}"
    token = parse_token(text)
    assert token is not None  # noqa: S101 - made by the line above
    return text, token
