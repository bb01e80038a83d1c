"""How a value of a record is written so that a person sees at a glance what it says. Pure.

What is shown comes from anywhere: what would act on a terminal or turn the direction of writing is replaced here, once
for every form a report has.
"""

import re
from typing import Any, cast

from records.evaluators.texts import read_text

from api.runs.models import Excerpt

MAX_CHARACTERS = 300
"""Of one excerpt, in code points; three of them are read in a few seconds."""
MAX_LINES = 8

_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
# Controls but for tab and line feed; marks, embeddings, overrides and isolates of direction (UAX 9); invisible tags.
_COMMANDS = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_BLANK_LINES = re.compile(r"\n\s*\n")


def make_excerpt(value: Any) -> Excerpt | None:
    """Write the beginning of an input or an output.

    Parameters
    ----------
    value
        JSON. A text stands as it is, anything else as JSON; of a conversation (messages with a role each) only the last
        message, which is what was asked or answered.

    Returns
    -------
    Excerpt or None
        None of null: there is nothing.
    """
    if value is None:
        return None
    messages = _list_messages(value)
    if messages:
        return cut_text(_read_message(messages[-1]), is_cut=len(messages) > 1)
    return cut_text(read_text(value))


def make_reference_excerpt(reference: Any) -> Excerpt | None:
    """Write the beginning of a reference; of several, any of which would do, one a line."""
    if not isinstance(reference, list):
        return make_excerpt(reference)
    choices = [read_text(choice) for choice in cast("list[Any]", reference) if choice is not None]
    return cut_text("\nor: ".join(choices)) if choices else None


def cut_text(text: str, *, is_cut: bool = False) -> Excerpt:
    """Cut a text to what a report shows of it, and replace what would be obeyed by U+FFFD.

    Parameters
    ----------
    text
        Any text.
    is_cut
        Whether something is left out already.
    """
    # No text needs more than this of what it begins with, however many blank lines it has.
    beginning = text[: 8 * MAX_CHARACTERS].strip()
    whole = _BLANK_LINES.sub("\n", _LINE_ENDS.sub("\n", beginning))
    lines = whole[:MAX_CHARACTERS].split("\n")
    shown = "\n".join(lines[:MAX_LINES]).rstrip()
    is_cut = is_cut or len(shown) < len(whole) or len(text) > 8 * MAX_CHARACTERS
    return Excerpt(text=_COMMANDS.sub("\N{REPLACEMENT CHARACTER}", shown), is_cut=is_cut)


def _list_messages(value: Any) -> list[dict[str, Any]]:
    """Return the messages of a conversation, bare or under `messages`; none when the value is something else."""
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value).get("messages")
    if not isinstance(value, list):
        return []
    messages = [cast("dict[str, Any]", one) for one in cast("list[Any]", value) if isinstance(one, dict)]
    is_conversation = len(messages) == len(cast("list[Any]", value)) and all("role" in one for one in messages)
    return messages if is_conversation else []


def _read_message(message: dict[str, Any]) -> str:
    """Return the text of a message; one without a text, such as a call of a tool, as JSON."""
    content = message.get("content") or message.get("parts")
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    texts = [_read_part(cast("dict[str, Any]", part)) for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if text) or read_text(message)


def _read_part(part: dict[str, Any]) -> str | None:
    text = part.get("text") or part.get("content")
    return text if isinstance(text, str) else None
