"""What the patterns of texts mean, in words: a refusal shows the rule and an example, never a regular expression."""

import re

from coordination.access import PROJECT_ID

_CHOICE = re.compile(r"\^\(([a-z_|]+)\)\$")
_ID = "lower-case letters, digits and hyphens, at most 63, a letter or digit first, such as support-answers"
_IN_WORDS = {
    PROJECT_ID: f"must be {_ID}",
    rf"^\*$|{PROJECT_ID}": f"must be * for every project, or a project's id: {_ID}",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$": (
        "must be letters (a-z, A-Z), digits, dots, underscores and hyphens, at most 128, a letter or digit first, "
        "such as support-questions"
    ),
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$": (
        "must be letters (a-z, A-Z), digits, dots, underscores and hyphens, at most 100, a letter or digit first, "
        "such as f1-of-answers"
    ),
    r"^[A-Za-z0-9][A-Za-z0-9._/-]*$": (
        "must be letters (a-z, A-Z), digits, dots, underscores, hyphens and slashes, a letter or digit first, "
        "such as team or evalsi.keep"
    ),
    r"^[a-z][a-z0-9_]{0,39}$": (
        "must be lower-case letters, digits and underscores, at most 40, a letter first, such as order_number"
    ),
    r"^[^=]+=": "must be key=value, such as team=search",
    r"^[0-9a-f]{64}$": "must be a SHA-256: 64 digits of 0-9 and a-f",
    r"^arn:[a-z0-9-]+:lambda:[a-z0-9-]+:\d{12}:function:[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9$_-]{1,128})?$": (
        "must be the ARN of a function, such as arn:aws:lambda:eu-central-1:123456789012:function:score"
    ),
}


def explain_pattern(pattern: str) -> str | None:
    """Return the rule of a pattern as the predicate of a sentence, or None for one that has no words.

    A choice, `^(one|two)$`, says itself; a test finds patterns of requests that have no words.
    """
    if choice := _CHOICE.fullmatch(pattern):
        return f"must be one of {', '.join(choice[1].split('|'))}"
    return _IN_WORDS.get(pattern)
