"""How large an answer is once Lambda carries it.

Lambda's response is a JSON document: a text body stands in it as an escaped string, any other body as base64.
"""

import orjson

MAX_RESPONSE_BYTES = 6_291_556
"""What Lambda takes back from a function; a larger response becomes the gateway's 502 although the function is done."""

# Status, header names, brackets, `isBase64Encoded`, and room for the headers that the border adds.
_ENVELOPE_BYTES = 2048
_TEXT_TYPES = ("application/json", "application/problem+json", "application/x-ndjson", "application/xml", "text/")


def is_text(content_type: str) -> bool:
    """Return whether a body of this type crosses Lambda as text; bytes would cross as base64, a third larger."""
    return content_type.startswith(_TEXT_TYPES)


def escaped_bytes(text: bytes) -> int:
    """Return how many bytes UTF-8 text has as a JSON string, without its quotes."""
    return len(orjson.dumps(text.decode())) - 2


def carried_bytes(content_type: str, body: bytes) -> int:
    """Return how many bytes a response with this body has; its headers and the rest are taken as 2 KiB.

    Parameters
    ----------
    content_type
        Of the body.
    body
        The bytes that the caller is to get.
    """
    if not is_text(content_type):
        return (len(body) + 2) // 3 * 4 + _ENVELOPE_BYTES
    return escaped_bytes(body) + _ENVELOPE_BYTES
