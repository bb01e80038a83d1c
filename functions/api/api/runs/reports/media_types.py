"""Which form of a report a caller wants: `?format=` if given, else the Accept header (RFC 9110, 12.5.1)."""

import re
from typing import Literal

type ReportFormat = Literal["json", "html", "markdown", "junit"]

MEDIA_TYPES: dict[ReportFormat, str] = {
    "json": "application/json",
    "html": "text/html",
    "markdown": "text/markdown",
    "junit": "application/xml",
}
"""In the order of preference between forms that a caller takes equally well."""

_WEIGHT = re.compile(r"q\s*=\s*([01](?:\.\d{0,3})?)", re.IGNORECASE)
_SYNONYMS = {"text/xml": "application/xml"}


def choose_format(accept: str) -> ReportFormat:
    """Return the form that an Accept header weighs highest.

    Parameters
    ----------
    accept
        As sent. A range that cannot be read counts for nothing. When no form is acceptable the answer is JSON all the
        same: a report in another form helps more than an error about its form.
    """
    weights = _read_weights(accept)
    best: ReportFormat = "json"
    best_weight = 0.0
    for name, media_type in MEDIA_TYPES.items():
        weight = _weigh(media_type, weights)
        if weight > best_weight:
            best, best_weight = name, weight
    return best


def _read_weights(accept: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in accept.split(","):
        media_range, *parameters = (piece.strip() for piece in part.split(";"))
        media_range = media_range.lower()
        matches = [match for match in map(_WEIGHT.fullmatch, parameters) if match]
        weight = float(matches[0][1]) if matches else 1.0
        weights[_SYNONYMS.get(media_range, media_range)] = weight
    return weights


def _weigh(media_type: str, weights: dict[str, float]) -> float:
    """Return the weight of the most specific range that covers a type, which need not be the heaviest."""
    kind = media_type.split("/")[0]
    for media_range in (media_type, f"{kind}/*", "*/*"):
        if media_range in weights:
            return weights[media_range]
    return 0.0
