"""Applies redaction rules to JSON values: once, to every string, wherever it stands."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, cast

import orjson

from records.evaluators.regex_match import compile_pattern
from records.redaction.field_paths import drop_path, parse_path
from records.redaction.patterns import Span, compile_hints, find_builtin
from records.redaction.rules import DROPPED_FIELD, MASKED_KEY, PATTERN_NAMES, PatternName, RedactionRules, fold_key

MAX_DEPTH = 200
"""Nesting that is followed; the outermost list or object counts 1."""

type Counts = Counter[str]
type _Finder = Callable[[bytes], Iterator[Span]]


class RedactionError(ValueError):
    """A value cannot be redacted, so it must not be kept either. The message holds nothing of it."""


class Redactor:
    """Takes out of JSON values what the rules name.

    What is masked becomes `[redacted:<kind>]`: names of masked values (`key`), built-in and custom patterns by their
    names. Where two patterns meet in one place, all of it is masked once, under the name that is listed first. A text
    that is a JSON object or list is looked at as such, so that a password in a tool's arguments is found by its name.

    Parameters
    ----------
    rules
        Compiled here, once.
    """

    def __init__(self, rules: RedactionRules) -> None:
        wanted: tuple[PatternName, ...] = tuple(name for name in PATTERN_NAMES if name in rules.patterns)
        self._drop_paths = [parse_path(path) for path in rules.drop_fields]
        self._mask_keys = frozenset(fold_key(name) for name in rules.mask_keys)
        self._hints: Any = compile_hints(wanted) if wanted else None
        self._builtins: list[tuple[str, _Finder]] = [(name, _finder_of_builtin(name)) for name in wanted]
        self._custom: list[tuple[str, _Finder]] = [
            (pattern.name, _finder_of_custom(pattern.pattern)) for pattern in rules.custom
        ]

    def redact_row(self, row: dict[str, Any], counts: Counts) -> dict[str, Any]:
        """Return a record's row without what the rules name; drops fields first.

        Parameters
        ----------
        row
            JSON values. Used up: dropped fields are taken out of it.
        counts
            Replacements by kind; added to.

        Raises
        ------
        RedactionError
            It is nested deeper than `MAX_DEPTH`.
        """
        for path in self._drop_paths:
            dropped = drop_path(row, path)
            if dropped:
                counts[DROPPED_FIELD] += dropped
        return self.redact(row, counts)

    def redact(self, value: Any, counts: Counts) -> Any:
        """Return a JSON value with all its texts redacted, names of members included; see `redact_row`."""
        return self._redact(value, counts, MAX_DEPTH)

    def redact_text(self, text: str, counts: Counts) -> str:
        """Return one text redacted."""
        return self._redact_text(text, counts, MAX_DEPTH)

    def _redact(self, value: Any, counts: Counts, levels: int) -> Any:
        if isinstance(value, str):
            return self._redact_text(value, counts, levels)
        if not isinstance(value, dict | list):
            return value
        if levels == 0:
            message = f"a value is nested deeper than {MAX_DEPTH} levels"
            raise RedactionError(message)
        if isinstance(value, list):
            return [self._redact(item, counts, levels - 1) for item in cast("list[Any]", value)]
        redacted: dict[str, Any] = {}
        for name, item in cast("dict[str, Any]", value).items():
            if item is not None and self._is_masked(name):
                counts[MASKED_KEY] += 1
                kept: Any = placeholder(MASKED_KEY)
            else:
                kept = self._redact(item, counts, levels - 1)
            redacted[_free_name(redacted, self._mask(name, counts))] = kept
        return redacted

    def _is_masked(self, name: str) -> bool:
        # Attributes of spans have dotted names: http.request.header.authorization.
        return fold_key(name) in self._mask_keys or fold_key(name.rpartition(".")[2]) in self._mask_keys

    def _redact_text(self, text: str, counts: Counts, levels: int) -> str:
        if levels and text.lstrip()[:1] in ("{", "["):
            inner = _read_json(text)
            if inner is not None:
                found: Counts = Counter()
                with suppress(RedactionError):
                    redacted = self._redact(inner, found, levels)
                    if found:
                        counts.update(found)
                        return orjson.dumps(redacted).decode()
        return self._mask(text, counts)

    def _mask(self, text: str, counts: Counts) -> str:
        if not text:
            return text
        data = text.encode("utf-8", "surrogatepass")
        finders = self._custom
        if self._hints is not None and self._hints.search(data) is not None:
            finders = [*self._builtins, *self._custom]
        if not finders:
            return text
        spans = [
            (start, end, place)
            for place, (_, find) in enumerate(finders)
            for start, end in find(data)
        ]  # fmt: skip
        if not spans:
            return text
        pieces: list[bytes] = []
        at = 0
        for start, end, place in _merge(spans):
            kind = finders[place][0]
            counts[kind] += 1
            pieces += (data[at:start], placeholder(kind).encode())
            at = end
        pieces.append(data[at:])
        return b"".join(pieces).decode("utf-8", "surrogatepass")


def placeholder(kind: str) -> str:
    """Return what stands in the place of something masked."""
    return f"[redacted:{kind}]"


def _finder_of_builtin(name: PatternName) -> _Finder:
    return lambda data: find_builtin(name, data)


def _finder_of_custom(pattern: str) -> _Finder:
    compiled = compile_pattern(pattern)

    def find(data: bytes) -> Iterator[Span]:
        for match in compiled.finditer(data):
            start, end = match.span()
            if end > start:
                yield start, end

    return find


def _merge(spans: list[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Join spans that overlap; the joined one is named by the finder that is listed first."""
    spans.sort()
    start, end, place = spans[0]
    for next_start, next_end, next_place in spans[1:]:
        if next_start < end:
            end, place = max(end, next_end), min(place, next_place)
            continue
        yield start, end, place
        start, end, place = next_start, next_end, next_place
    yield start, end, place


def _free_name(taken: dict[str, Any], name: str) -> str:
    """Return a name that is free: two members whose names are masked alike both stay."""
    number, free = 2, name
    while free in taken:
        free = f"{name} ({number})"
        number += 1
    return free


def _read_json(text: str) -> dict[str, Any] | list[Any] | None:
    try:
        value = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return None
    return cast("dict[str, Any] | list[Any]", value) if isinstance(value, dict | list) else None
