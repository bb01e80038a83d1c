"""The console's one page: style and scripts beside this module, put together, under a policy that names them."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

# Read in this order: what a later one uses, an earlier one defines.
SCRIPTS = (
    "elements.js",
    "calls.js",
    "projects.js",
    "comparison.js",
    "runs.js",
    "sources.js",
    "operating.js",
    "console.js",
)
# `connect-src 'self'`: the page speaks with this API and with nobody else, whatever it is made to show.
# Trusted Types: the browser itself refuses to read text as HTML, which no script of the page does.
_POLICY = (
    "default-src 'none'; connect-src 'self'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


@cache
def read_page() -> tuple[bytes, dict[str, str]]:
    """Put the page together, once in a process.

    Returns
    -------
    tuple
        The HTML, and the headers that keep it to itself: its own script and style run, found by their SHA-256.
    """
    folder = files("api.console")
    style = folder.joinpath("console.css").read_text()
    script = '"use strict";\n' + "".join(folder.joinpath(name).read_text() for name in SCRIPTS)
    page = folder.joinpath("console.html").read_text().replace("{style}", style).replace("{script}", script)
    return page.encode(), {
        "content-security-policy": _POLICY.format(script=_digest(script), style=_digest(style)),
        "cross-origin-opener-policy": "same-origin",
        "cache-control": "no-cache",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
