"""Guesses why a line is no JSON, in words that say what to change."""

import re

_WORDS = {
    "None": "Python's None: write null",
    "True": "Python's True: write true",
    "False": "Python's False: write false",
    "undefined": "JavaScript's undefined: write null, or leave the member out",
    "nan": "nan: write null",
    "inf": "inf: write null",
}
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_CURLY_QUOTES = "\u2018\u2019\u201c\u201d\u00ab\u00bb"
_ONE_OBJECT_A_LINE = "JSONL has one object a line"

PRETTY_PRINTED = f"the object goes on in the next line, it looks pretty-printed: {_ONE_OBJECT_A_LINE}"
JSON_ARRAY = f"a JSON array: {_ONE_OBJECT_A_LINE}, without brackets around and commas between them"


def explain_syntax(text: str, position: int, expected: str) -> str:
    """Return a message for a line that breaks JSON's grammar.

    Parameters
    ----------
    text
        The line.
    position
        Characters before the place where reading failed.
    expected
        What should have been there.
    """
    cause = _guess(text, position, expected)
    return f"not JSON at character {position + 1}: {cause}"


def is_array_start(text: bytes) -> bool:
    """Tell whether a line begins a JSON array."""
    return text.lstrip(b" \t\r")[:1] == b"["


def _guess(text: str, position: int, expected: str) -> str:
    here = text[position : position + 1]
    before = text[:position].rstrip(" \t\r")[-1:]
    rest = text[position:].strip(" \t\r")
    if not rest:
        return _guess_at_end(expected)
    if before == "," and here in "}]":
        return "a trailing comma before a closing bracket: remove it"
    if expected == "the end of the line":
        return _guess_after_row(rest)
    if here == "'":
        return "single quotes: JSON has texts and names in double quotes"
    if rest.startswith(("//", "/*", "#")):
        return "a comment: JSON has none, remove it"
    if here in _CURLY_QUOTES:
        return 'typographic quotes: JSON has plain double quotes (")'
    if here == "\ufeff":
        return "a byte order mark inside the file (were files joined?): remove it"
    if expected == "control characters escaped":
        return f"the control character U+{ord(here):04X} in a text: write it as \\u{ord(here):04x}"
    if expected == "a valid escape":
        return "a backslash that begins no escape of JSON: write it twice"
    return _guess_from_word(text, position, expected)


def _guess_at_end(expected: str) -> str:
    if expected == "the end of a text in double quotes":
        return "a text in double quotes has no end in this line: line breaks in a text are written \\n"
    return PRETTY_PRINTED


def _guess_after_row(rest: str) -> str:
    if rest == ",":
        return "a trailing comma after the row: remove it, rows are divided by line ends only"
    if rest[0] in "{,":
        return f"another row in the same line: {_ONE_OBJECT_A_LINE}, with line ends of LF or CR LF"
    if rest.startswith(("//", "/*", "#")):
        return "a comment after the row: JSON has none, remove it"
    return "something follows the row in the same line"


def _guess_from_word(text: str, position: int, expected: str) -> str:
    word = _WORD.match(text, position)
    if word and expected == "a name in double quotes":
        return "a name without quotes: JSON has names in double quotes"
    if word and word.group() in _WORDS:
        return _WORDS[word.group()]
    return f"expected {expected}"
