"""The Idempotency-Key header.

draft-ietf-httpapi-idempotency-key-header-07 sends a structured-field string (RFC 8941), most clients send the bare
value: `"abc"` and `abc` are one key.
"""

import hashlib
import re

from coordination.errors import InvalidIdempotencyKeyError

MAX_LENGTH = 128
# A quoted string with its escapes, then parameters, which a structured field allows and which mean nothing here.
_QUOTED = re.compile(r'"((?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"(?: *; *[a-z*][a-z0-9_.*-]*(?:=[!-~]+)?)*')
_VISIBLE = re.compile(r"[\x21-\x7e]+")


def parse_idempotency_key(header: str) -> str:
    """Unwrap the header's value.

    Raises
    ------
    InvalidIdempotencyKeyError
        Empty, over 128 characters, not visible ASCII, an unbalanced quote, or several values.
    """
    value = header.strip(" \t")
    quoted = _QUOTED.fullmatch(value)
    if quoted is not None:
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    elif "," in value:
        # API Gateway joins repeated headers with a comma.
        raise InvalidIdempotencyKeyError(
            "Send one Idempotency-Key header with one value; put a key with a comma into quotes."
        )
    elif '"' in value:
        raise InvalidIdempotencyKeyError("The Idempotency-Key has an unbalanced quote.")
    else:
        key = value
    if not key:
        raise InvalidIdempotencyKeyError(
            "The Idempotency-Key is empty; leave the header out or send 1 to 128 characters."
        )
    if len(key) > MAX_LENGTH:
        raise InvalidIdempotencyKeyError(
            f"The Idempotency-Key has {len(key)} characters, at most {MAX_LENGTH} are allowed."
        )
    if _VISIBLE.fullmatch(key) is None:
        raise InvalidIdempotencyKeyError("The Idempotency-Key may hold visible ASCII characters only (0x21 to 0x7E).")
    return key


def digest_key(key: str) -> bytes:
    """Return SHA-256 of a key: all that is stored of it."""
    return hashlib.sha256(key.encode("ascii")).digest()
