"""The built-in patterns: secrets and personal data as they are met inside text.

Each pattern is an RE2 expression that finds candidates, and where that is not enough a check that a candidate is what
it looks like (Luhn digits, IBAN check digits, a real IP address) and is not a part of something longer. Texts are
looked at as UTF-8.
"""

import ipaddress
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from records.redaction.rules import PATTERN_NAMES, PatternName

type Span = tuple[int, int]
type Check = Callable[[bytes, int, int], list[Span]]

_MAIL = rb"""[^\s@<>"'(),:;\[\]\\{}=/|`]""".decode()
_MAIL_LABEL = rb"""[^\s@<>"'(),:;\[\]\\{}=/|`.?&#!]""".decode()
_DIGITS = frozenset(b"0123456789")
_CARD_DIGITS_MIN, _CARD_DIGITS_MAX = 13, 19
_WORD = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")

# ISO 13616: characters of an IBAN by country, for the countries of the registry.
_IBAN_LENGTHS = {
    length: countries.split()
    for length, countries in {
        15: "NO",
        16: "BE",
        18: "DK FI FO GL NL SD FK",
        19: "MK SI",
        20: "AT BA EE KZ LT LU XK MN",
        21: "CH HR LI LV",
        22: "BG BH CR DE GB GE IE ME RS VA",
        23: "AE GI IL IQ TL OM SO",
        24: "AD CZ ES MD PK RO SA SE SK TN VG",
        25: "LY PT ST",
        26: "IS TR",
        27: "BI DJ FR GR IT MC MR SM",
        28: "AL AZ BY CY DO GT HU LB NI PL SV",
        29: "BR EG PS QA UA",
        30: "JO KW MU YE",
        31: "MT SC",
        32: "LC",
        33: "RU",
    }.items()
}
_IBAN_LENGTH_OF = {country: length for length, countries in _IBAN_LENGTHS.items() for country in countries}


class Pattern(NamedTuple):
    """A built-in pattern.

    Parameters
    ----------
    hint
        RE2; matches wherever the pattern may, and costs little where it does not.
    expression
        RE2; finds every candidate.
    check
        Narrows a candidate to what is to be masked, or says that it is nothing.
    is_run
        A candidate is as long as it can be, so what is in it is found at once.
    """

    hint: str
    expression: str
    check: Check | None = None
    is_run: bool = False


def _stands_alone(data: bytes, start: int, end: int) -> list[Span]:
    """Refuse a candidate that is a part of a longer word or number."""
    before = data[start - 1] if start else 32
    after = data[end] if end < len(data) else 32
    if before in _WORD or after in _WORD or before in b"-." or (after in b"-." and data[end + 1 : end + 2].isalnum()):
        return []
    return [(start, end)]


def _is_key_like(data: bytes, start: int, end: int) -> list[Span]:
    """Refuse words that are joined by dashes: a key has digits, capitals or a long run of letters."""
    key = data[start + 3 : end]
    if any(byte in _DIGITS or 65 <= byte <= 90 for byte in key) or max(map(len, key.split(b"-"))) >= 16:
        return [(start, end)]
    return []


def _take_token(data: bytes, start: int, end: int) -> list[Span]:
    """Keep the word `Bearer` and refuse what follows it in prose."""
    token = data[start:end].split()[-1]
    if len(token) >= 20 or any(byte in _DIGITS for byte in token):
        return [(end - len(token), end)]
    return []


def _take_value(data: bytes, start: int, end: int) -> list[Span]:
    """Keep the name that stands before a secret."""
    if data[start : start + 2].upper() == b"AW":
        return [(end - 40, end)]
    return [(start, end)]


def _check_iban(data: bytes, start: int, end: int) -> list[Span]:
    country = data[start : start + 2].decode().upper()
    length = _IBAN_LENGTH_OF.get(country)
    if length is None:
        return []
    taken, at = bytearray(), start
    while at < end and len(taken) < length:
        if data[at] in _WORD:
            taken.append(data[at])
        at += 1
    if len(taken) < length or (at < len(data) and data[at] in _WORD):
        return []
    text = bytes(taken[4:] + taken[:4]).decode().upper()
    number = int("".join(str(int(character, 36)) for character in text))
    return [(start, at)] if number % 97 == 1 else []


def _check_card(data: bytes, start: int, end: int) -> list[Span]:
    """Find a card number in a run of digits that single spaces or dashes part into groups."""
    before, after = data[start - 1 : start], data[end : end + 2]
    if before.isalpha() or before in (b"_", b".", b"-", b"+") or after[:1].isalpha() or after[:1] == b"_":
        return []
    if after[:1] == b"." and after[1:].isdigit():
        return []
    groups: list[Span] = []
    at = start
    while at < end:
        stop = at
        while stop < end and data[stop] in _DIGITS:
            stop += 1
        groups.append((at, stop))
        at = stop + 1
    found: list[Span] = []
    first = 0
    while first < len(groups):
        last = _find_last_group(data, groups, first)
        if last is not None:
            found.append((groups[first][0], groups[last][1]))
        first = first + 1 if last is None else last + 1
    return found


def _find_last_group(data: bytes, groups: list[Span], first: int) -> int | None:
    """Return the last group of the longest card number that begins with a group."""
    digits, found = b"", None
    for place in range(first, len(groups)):
        digits += data[slice(*groups[place])]
        if len(digits) > _CARD_DIGITS_MAX:
            break
        if len(digits) >= _CARD_DIGITS_MIN and digits[0] in b"23456" and _is_luhn(digits):
            found = place
    return found


def _is_luhn(digits: bytes) -> bool:
    total = 0
    for position, byte in enumerate(reversed(digits)):
        digit = byte - 48
        if position % 2:
            digit = digit * 2 - 9 if digit > 4 else digit * 2
        total += digit
    return total % 10 == 0 and len(set(digits)) > 1


def _check_ip(data: bytes, start: int, end: int) -> list[Span]:
    while end > start and data[end - 1] in b".":
        end -= 1
    if data[end - 1 : end] == b":" and data[end - 2 : end] != b"::":
        end -= 1
    if not _stands_alone(data, start, end) or (start and data[start - 1] == 58):
        return []
    text = data[start:end].decode()
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return []
    # `a::b` is an address too, but far more often a name in a program.
    return [(start, end)] if address.version == 4 or any(character.isdigit() for character in text) else []


_PHONE = "|".join(
    [
        r"\+ ?[1-9](?:[ ().\-/]{0,3}[0-9]){6,14}",
        r"00[ ]?[1-9][0-9]{0,2}[ .\-/](?:[ ().\-/]{0,2}[0-9]){6,12}",
        r"(?:1[ .\-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .\-])[2-9][0-9]{2}[ .\-][0-9]{4}",
        r"\(0[0-9]{1,4}\) ?[0-9]{2,8}(?:[ \-][0-9]{1,6}){0,3}",
        r"0[1-9](?:[ .][0-9]{2}){4}",
        r"0[1-9][0-9]{1,4}(?:[ \-][0-9]{3,4}){2}",
        r"0[1-9][0-9]{1,3}[ /\-][0-9]{5,9}",
        r"(?i:tel|phone|mobile|fax|call)[:. ]{1,3}[0-9]{7,15}",
    ]
)
_KEY_END = r"[A-Za-z0-9_\-]"

_BEGIN_KEY = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_END_KEY = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_MANY_DIGITS = r"[0-9](?:[ ().\-/]{0,3}[0-9]){6}"

_PATTERNS: dict[PatternName, Pattern] = {
    "private_key": Pattern("-----BEGIN ", _BEGIN_KEY),
    "jwt": Pattern("eyJ", r"\beyJ[A-Za-z0-9_\-]{5,}\.[A-Za-z0-9_\-]{5,}\.[A-Za-z0-9_\-]*"),
    "provider_key": Pattern(
        "sk-|AIza|hf_|gsk_|xai-|r8_|ew_",
        rf"\bsk-{_KEY_END}{{16,}}|\bAIza{_KEY_END}{{35}}|\bhf_[A-Za-z0-9]{{30,}}|\bgsk_[A-Za-z0-9]{{30,}}"
        rf"|\bxai-[A-Za-z0-9]{{30,}}|\br8_[A-Za-z0-9]{{30,}}|\bew_[0-9a-f]{{16}}_[0-9a-f]{{64}}",
        _is_key_like,
    ),
    "github_token": Pattern("gh[pousr]_|github_pat_", r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"),
    "aws_key": Pattern(
        "AKIA|ASIA|ABIA|ACCA|(?i:aws_?secret)",
        r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"
        r"""|(?i:aws_?secret_?access_?key)["']?\s{0,3}[:=]\s{0,3}["']?[A-Za-z0-9/+=]{40}""",
        _take_value,
    ),
    "bearer_token": Pattern(r"(?i:bearer)\s", r"(?i:\bbearer)\s{1,3}[A-Za-z0-9._~+/=\-]{8,}", _take_token),
    "iban": Pattern(
        r"[A-Za-z]{2}[0-9]{2}[ \-]?[A-Za-z0-9]{2}", r"\b[A-Za-z]{2}[0-9]{2}(?:[ \-]?[A-Za-z0-9]){11,30}", _check_iban
    ),
    "payment_card": Pattern(_MANY_DIGITS, r"[0-9](?:[ \-]?[0-9]){12,}", _check_card, is_run=True),
    "email": Pattern(
        "@|%40",
        rf"{_MAIL}+(?:@|%40)(?:{_MAIL_LABEL}+\.)+(?:xn--[A-Za-z0-9\-]+|[A-Za-z][A-Za-z]+|[^\x00-\x7f]{{2,}})",
    ),
    "phone": Pattern(_MANY_DIGITS, _PHONE, _stands_alone),
    "ip_address": Pattern(
        r"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|:[0-9A-Fa-f]{0,4}:",
        r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}(?:[0-9]{0,2}\.[0-9.]{5,11})?",
        _check_ip,
    ),
}


@cache
def compile_hints(names: tuple[PatternName, ...]) -> Any:
    """Compile one expression that matches wherever one of the patterns may: nearly every text has nothing."""
    return _compile("|".join(f"(?:{_PATTERNS[name].hint})" for name in names))


def find_builtin(name: PatternName, data: bytes) -> Iterator[Span]:
    """Yield what a built-in pattern masks in a text, as byte offsets, in their order and not overlapping."""
    if name == "private_key":
        yield from _find_private_keys(data)
        return
    pattern = _PATTERNS[name]
    compiled = _compile(pattern.expression)
    at = 0
    while (match := compiled.search(data, at)) is not None:
        start, end = match.span()
        spans = [(start, end)] if pattern.check is None else pattern.check(data, start, end)
        yield from spans
        after = spans[-1][1] if spans else _skip_word(data, start, end)
        at = end if pattern.is_run else after


def _find_private_keys(data: bytes) -> Iterator[Span]:
    """Yield private keys with their armour; one without an end goes as far as it looks like a key."""
    begin, finish = _compile(_BEGIN_KEY), _compile(_END_KEY)
    has_end, at = True, 0
    while (match := begin.search(data, at)) is not None:
        last = finish.search(data, match.end()) if has_end else None
        if last is None:
            # Asked once: a text full of beginnings is not searched to its end for each of them.
            has_end = False
            last = _compile(r"[A-Za-z0-9+/=\s\\]*").match(data, match.end())
        at = max(last.end(), match.end()) if last is not None else match.end()
        yield match.start(), at


def _skip_word(data: bytes, start: int, end: int) -> int:
    """Return where to go on after a candidate that was none: after its first word."""
    at = start
    while at < end and data[at] in _WORD:
        at += 1
    return max(at, start + 1)


@cache
def _compile(expression: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(expression, options)


assert tuple(_PATTERNS) == PATTERN_NAMES  # noqa: S101 - one list in two places: the order decides which name wins
