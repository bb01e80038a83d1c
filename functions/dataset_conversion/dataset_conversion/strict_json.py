"""A JSON reader that finds everything that is wrong with one row, and says where.

The fast readers stop at the first fault, drop duplicate names silently and cannot say which member they were at. Rows
that they refuse, or that look suspicious after they have read them, are read again by this one. It is slow (a few MB/s)
and meets at most as many bad rows as errors are reported.

The grammar is that of RFC 8259; in addition NaN and Infinity are recognized to be refused by name.
"""

import json
import re
from typing import Any, Literal, NamedTuple, NoReturn

from records.canonical_json import NotCanonicalError, canonical_float, canonical_integer
from records.json_pointer import write_pointer
from records.row_errors import Reason
from records.row_fields import RowProblem

from dataset_conversion.likely_cause import explain_syntax

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_NOT_FINITE = re.compile(r"-?Infinity|NaN")
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_REPLACEMENT = "\ufffd"
# An integer's digits beyond which only its sign matters: it is far outside of any range.
_DIGITS_MAX = 400


class Reading(NamedTuple):
    """What a row holds.

    Parameters
    ----------
    value
        The row, its numbers ready to be written canonically; ``None`` and of no meaning when `is_json` is false.
    is_json
        The row follows the grammar.
    problems
        What is wrong with it.
    replaced_nuls
        Texts in which NUL characters became U+FFFD.
    """

    value: Any
    is_json: bool
    problems: list[RowProblem]
    replaced_nuls: int


def read_strictly(line: bytes, nul: Literal["refuse", "replace"]) -> Reading:
    """Read one row, which must not be nested deeper than Python's stack allows.

    Parameters
    ----------
    line
        The row without its line end.
    nul
        Whether NUL characters are a problem or become U+FFFD.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        return Reading(None, False, [_explain_encoding(line, error)], 0)
    reader = _RowReader(text, nul)
    try:
        value = reader.read_row()
    except _SyntaxError as error:
        message = explain_syntax(text, error.position, error.expected)
        return Reading(None, False, [*reader.problems, RowProblem(None, "not_json", message)], reader.replaced_nuls)
    return Reading(value, True, reader.problems, reader.replaced_nuls)


def _explain_encoding(line: bytes, error: UnicodeDecodeError) -> RowProblem:
    where = f"byte {error.start + 1} of the line (0x{line[error.start]:02X}) is not UTF-8"
    neighbour = line[error.start + 1 : error.start + 2]
    looks_like_latin_1 = not neighbour or neighbour.isascii()
    cause = "; the file looks like Latin-1 or Windows-1252: convert it to UTF-8" if looks_like_latin_1 else ""
    return RowProblem(None, "not_utf8", where + cause)


class _SyntaxError(Exception):
    def __init__(self, position: int, expected: str) -> None:
        super().__init__(expected)
        self.position = position
        self.expected = expected


class _RowReader:
    def __init__(self, text: str, nul: Literal["refuse", "replace"]) -> None:
        self._text = text
        self._nul = nul
        self._at = 0
        self._path: list[str | int] = []
        self.problems: list[RowProblem] = []
        self.replaced_nuls = 0

    def read_row(self) -> Any:
        value = self._read_value()
        self._skip_space()
        if self._at < len(self._text):
            self._fail("the end of the line")
        return value

    def _fail(self, expected: str) -> NoReturn:
        raise _SyntaxError(self._at, expected)

    def _note(self, reason: Reason, message: str) -> None:
        self.problems.append(RowProblem(write_pointer(self._path) or None, reason, message))

    def _skip_space(self) -> str:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
        return self._text[self._at : self._at + 1]

    def _read_value(self) -> Any:
        match self._skip_space():
            case "{":
                return self._read_object()
            case "[":
                return self._read_list()
            case '"':
                return self._read_string()
            case "t":
                return self._read_word("true", True)
            case "f":
                return self._read_word("false", False)
            case "n":
                return self._read_word("null", None)
            case _:
                return self._read_number()

    def _read_word(self, word: str, value: Any) -> Any:
        if not self._text.startswith(word, self._at):
            self._fail("a value")
        self._at += len(word)
        return value

    def _read_object(self) -> dict[str, Any]:
        members: dict[str, Any] = {}
        self._at += 1
        if self._skip_space() == "}":
            self._at += 1
            return members
        while True:
            if self._skip_space() != '"':
                self._fail("a name in double quotes")
            problems_before = len(self.problems)
            name = self._read_string()
            self._path.append(name)
            # What is wrong with a name is found before the name is known.
            place = write_pointer(self._path)
            named = [problem._replace(field=place) for problem in self.problems[problems_before:]]
            self.problems[problems_before:] = named
            if name in members:
                self._note("duplicate_key", f"the name {_show(name)} occurs twice in one object: keep one of them")
            if self._skip_space() != ":":
                self._fail("a colon")
            self._at += 1
            members[name] = self._read_value()
            self._path.pop()
            match self._skip_space():
                case ",":
                    self._at += 1
                case "}":
                    self._at += 1
                    return members
                case _:
                    self._fail("a comma or the end of the object")

    def _read_list(self) -> list[Any]:
        items: list[Any] = []
        self._at += 1
        if self._skip_space() == "]":
            self._at += 1
            return items
        while True:
            self._path.append(len(items))
            items.append(self._read_value())
            self._path.pop()
            match self._skip_space():
                case ",":
                    self._at += 1
                case "]":
                    self._at += 1
                    return items
                case _:
                    self._fail("a comma or the end of the list")

    def _read_number(self) -> Any:
        text = self._text
        if match := _NOT_FINITE.match(text, self._at):
            self._at = match.end()
            self._note("not_finite", f"{match.group()} is no JSON: write null, or leave the member out")
            return 0
        match = _NUMBER.match(text, self._at)
        if match is None:
            self._fail("a value")
        self._at = match.end()
        digits = match.group()
        try:
            if match.group(1):
                return canonical_float(float(digits))
            return canonical_integer(int(digits[:_DIGITS_MAX]))
        except NotCanonicalError as error:
            if error.reason == "integer_range":
                message = "an integer beyond 64 bits (-2^63 to 2^64-1): write it as a text"
                self._note("integer_range", message)
            else:
                self._note("not_finite", "a number beyond the range of a double (1.8e308): write it as a text")
            return 0

    def _read_string(self) -> str:
        start = self._at = self._at + 1
        text = self._text
        parts: list[str] = []
        has_lone_surrogate = has_nul = False
        while True:
            match = _PLAIN.match(text, self._at)
            end = match.end() if match else self._at
            parts.append(text[self._at : end])
            self._at = end
            match text[end : end + 1]:
                case '"':
                    self._at += 1
                    break
                case "\\":
                    character = self._read_escape()
                    if "\ud800" <= character <= "\udfff":
                        has_lone_surrogate, character = True, _REPLACEMENT
                    elif character == "\x00":
                        has_nul, character = True, _REPLACEMENT
                    parts.append(character)
                case "":
                    self._at = max(start, len(text))
                    self._fail("the end of a text in double quotes")
                case _:
                    self._fail("control characters escaped")
        if has_lone_surrogate:
            self._note("surrogate", "half of a surrogate pair (\\ud800 to \\udfff alone): it stands for no character")
        if has_nul and self._nul == "replace":
            self.replaced_nuls += 1
        elif has_nul:
            message = "a NUL character (\\u0000), which databases cannot store: remove it, or publish with nul=replace"
            self._note("nul", message)
        return "".join(parts)

    def _read_escape(self) -> str:
        text, at = self._text, self._at
        letter = text[at + 1 : at + 2]
        if letter in _ESCAPES and letter:
            self._at = at + 2
            return _ESCAPES[letter]
        unit = _HEX.match(text, at + 2) if letter == "u" else None
        if unit is None:
            self._fail("a valid escape")
        self._at = at + 6
        code = int(unit.group(), 16)
        if 0xD800 <= code < 0xDC00 and text.startswith("\\u", at + 6):
            low = _HEX.match(text, at + 8)
            if low and 0xDC00 <= (low_code := int(low.group(), 16)) < 0xE000:
                self._at = at + 12
                return chr(0x10000 + ((code - 0xD800) << 10) + (low_code - 0xDC00))
        return chr(code)


def _show(name: str) -> str:
    shown = 64
    return ascii(name if len(name) <= shown else name[:shown] + "…")


def is_guilty(line: bytes) -> bool:
    """Tell whether JSON that a fast reader took has NUL characters, or a name twice in one object."""
    if b"\\u0000" in line:
        return True
    try:
        json.loads(line, object_pairs_hook=_refuse_repeats, parse_int=str, parse_float=str)
    except ValueError:
        return True
    return False


def _refuse_repeats(members: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) != len(members):
        message = "a name occurs twice"
        raise ValueError(message)
