"""Create, list and delete API keys."""

from datetime import datetime
from typing import Any

from coordination.access import Grant, Principal, generate_token
from coordination.database import Transaction
from coordination.errors import Fault, InvalidRequestError, NotFoundError, PermissionDeniedError
from coordination.http.pages import Page, PageQuery, decode_cursor, make_page, read_text
from coordination.queries import load_queries
from psycopg.types.json import Jsonb
from pydantic import TypeAdapter

from api.keys.models import CreateKey, Key, NewKey

_QUERIES = load_queries("keys")
_GRANTS = TypeAdapter(list[Grant])


def create_key(transaction: Transaction, new: CreateKey, principal: Principal) -> NewKey:
    """Create a key; its text leaves in this answer only.

    Raises
    ------
    PermissionDeniedError
        A grant gives more than the caller has: nobody makes a key that is stronger than their own.
    InvalidRequestError
        It would have expired already, on the database's clock.
    """
    for grant in new.grants:
        if not principal.may_give(grant):
            raise PermissionDeniedError(
                f"The grant on {grant.project!r} lists permissions that your own key lacks there; leave them out."
            )
    text, token = generate_token()
    row = transaction.fetch_one(
        _QUERIES["insert_key"],
        {
            "id": token.key_id,
            "name": new.name,
            "secret_sha256": token.secret_sha256,
            "grants": Jsonb([grant.model_dump(mode="json", exclude_none=True) for grant in new.grants]),
            "expires_at": new.expires_at,
            "created_by": principal.id,
        },
    )
    if row is None:
        raise InvalidRequestError.at([Fault("/expires_at", "lies in the past; give a later time or null")])
    return NewKey(**_to_key(row).model_dump(), secret=text)


def list_keys(transaction: Transaction, query: PageQuery) -> Page[Key]:
    """List keys, newest first."""
    after = decode_cursor("keys", query.cursor, datetime.fromisoformat, read_text)
    rows = transaction.fetch_all(
        _QUERIES["list_keys"],
        {
            "after_created_at": after[0] if after else None,
            "after_id": after[1] if after else None,
            "limit": query.limit + 1,
        },
    )
    return make_page("keys", rows, query.limit, _to_key, lambda row: [row["created_at"].isoformat(), row["id"]])


def delete_key(transaction: Transaction, key_id: str, principal: Principal) -> None:
    """Delete a key; it stops working at once.

    Raises
    ------
    NotFoundError
        There is none of that id.
    PermissionDeniedError
        It may do more than the caller: nobody locks out a key that is stronger than their own.
    """
    row = transaction.fetch_one(_QUERIES["delete_key"], {"id": key_id})
    if row is None:
        raise NotFoundError("There is no key of that id.")
    for grant in _GRANTS.validate_python(row["grants"]):
        if not principal.may_give(grant):
            raise PermissionDeniedError(
                f"Its grant on {grant.project!r} lists permissions that your own key lacks there; "
                "delete it with a key that has them."
            )


def _to_key(row: dict[str, Any]) -> Key:
    return Key(
        id=row["id"],
        name=row["name"],
        prefix=f"ew_{row['id']}_",
        grants=_GRANTS.validate_python(row["grants"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
    )
