"""The rules of redaction, as a source declares them."""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from records.evaluators.regex_match import compile_pattern
from records.redaction.field_paths import ALL, parse_path

type PatternName = Literal[
    "private_key",
    "jwt",
    "provider_key",
    "github_token",
    "aws_key",
    "bearer_token",
    "iban",
    "payment_card",
    "email",
    "phone",
    "ip_address",
]
PATTERN_NAMES: tuple[PatternName, ...] = get_args(PatternName.__value__)
"""The built-in patterns; where two meet in one place, the earlier one names it."""

MASKED_KEY, DROPPED_FIELD = "key", "field"
"""Kinds that are no pattern: the value of a masked name, and a dropped field."""

DEFAULT_MASK_KEYS = (
    *("password", "passwd", "pwd", "passphrase", "secret", "client_secret", "authorization", "proxy_authorization"),
    *("api_key", "x_api_key", "access_key", "secret_key", "secret_access_key", "private_key", "access_token"),
    *("refresh_token", "id_token", "auth_token", "session_token", "token", "cookie", "set_cookie", "credentials"),
)
_RESERVED = frozenset({*PATTERN_NAMES, MASKED_KEY, DROPPED_FIELD})
_NOT_IN_NAMES = str.maketrans("", "", "_- ")


class CustomPattern(BaseModel):
    """A regular expression of one's own, in RE2 syntax: linear time whatever the text."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: Annotated[
        str, Field(pattern=r"^[a-z][a-z0-9_]{0,39}$", description="stands in `[redacted:<name>]` and in the report")
    ]
    pattern: Annotated[str, Field(min_length=1, max_length=1000, description="regular expression in RE2 syntax")]

    @field_validator("pattern")
    @classmethod
    def compiles(cls, pattern: str) -> str:
        """Refuse what RE2 does not run, and what matches where there is nothing."""
        if compile_pattern(pattern).search("") is not None:
            message = "matches the empty text, so it would match everywhere; make it need at least one character"
            raise ValueError(message)
        return pattern


class RedactionRules(BaseModel):
    """What is taken out of traces before anything is stored or evaluated. Every rule is on unless it is named away."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    drop_fields: list[str] = Field(
        max_length=100,
        default_factory=list,
        description="paths of fields to drop: $.metadata.user, $.trajectory.steps[*].args",
    )
    mask_keys: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        max_length=200,
        default_factory=lambda: list(DEFAULT_MASK_KEYS),
        description="names whose values are masked whole, whatever their case; `-`, `_` and spaces do not count",
    )
    patterns: list[PatternName] = Field(
        default_factory=lambda: list(PATTERN_NAMES), description="built-in patterns, found inside text too"
    )
    custom: list[CustomPattern] = Field(
        max_length=20, default_factory=list[CustomPattern], description="patterns of one's own"
    )

    @field_validator("drop_fields")
    @classmethod
    def name_places(cls, paths: list[str]) -> list[str]:
        """Refuse what is no path, and the id, without which a record is none."""
        for path in paths:
            if parse_path(path)[0] in ("id", ALL):
                message = f"{path!r} would drop the record's id, which every record needs"
                raise ValueError(message)
        return paths

    @model_validator(mode="after")
    def has_one_meaning_a_name(self) -> "RedactionRules":
        """Refuse two custom patterns of one name, and names that are taken."""
        names = [pattern.name for pattern in self.custom]
        taken = sorted({name for name in names if name in _RESERVED or names.count(name) > 1})
        if taken:
            message = f"custom: the name {taken[0]!r} is taken; give each pattern a name of its own"
            raise ValueError(message)
        return self


def fold_key(name: str) -> str:
    """Return what names of masked values are compared by: case, `-`, `_` and spaces do not count."""
    return name.casefold().translate(_NOT_IN_NAMES)


def read_rules(stored: Any) -> RedactionRules:
    """Read rules that were stored as JSON values."""
    return RedactionRules.model_validate(stored)
