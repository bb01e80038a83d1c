"""How texts of records are cut for a report, and what is done to those that would do something."""

from __future__ import annotations

import re
from typing import Any

import pytest
from api.runs.excerpts import MAX_CHARACTERS, cut_text, make_excerpt, make_reference_excerpt
from hypothesis import given
from hypothesis import strategies as st

REPLACED = "\N{REPLACEMENT CHARACTER}"


def shown(value: Any) -> tuple[str, bool] | None:
    excerpt = make_excerpt(value)
    return None if excerpt is None else (excerpt.text, excerpt.is_cut)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("How do I pay?", "How do I pay?"),
        ("", ""),
        (0, "0"),
        (False, "false"),
        ({"b": 1, "a": "é"}, '{"a":"é","b":1}'),
        ([1, "two"], '[1,"two"]'),
        ([], "[]"),
        (["role"], '["role"]'),
        ([{"role": "user", "content": "How?"}], "How?"),
        ({"messages": [{"role": "user", "content": "How?"}]}, "How?"),
        ([{"role": "user", "content": [{"type": "text", "text": "How"}, {"type": "image"}]}], "How"),
        ([{"role": "user", "parts": [{"type": "text", "content": "How"}]}], "How"),
        ([{"role": "assistant", "tool_calls": ["f"]}], '{"role":"assistant","tool_calls":["f"]}'),
        ([{"role": "user", "content": "a"}, "b"], '[{"content":"a","role":"user"},"b"]'),
    ],
)
def test_values_are_written_for_people(value: Any, text: str) -> None:
    assert shown(value) == (text, False)


def test_of_a_conversation_the_last_message_is_shown() -> None:
    conversation = [{"role": "system", "content": "Be brief. " * 100}, {"role": "user", "content": "How do I pay?"}]
    assert shown(conversation) == ("How do I pay?", True)


def test_nothing_is_nothing() -> None:
    assert shown(None) is None
    assert make_reference_excerpt(None) is None
    assert make_reference_excerpt([]) is None
    assert make_reference_excerpt([None]) is None


def test_references_stand_one_a_line() -> None:
    excerpt = make_reference_excerpt(["yes", None, {"a": 1}])
    assert excerpt is not None
    assert (excerpt.text, excerpt.is_cut) == ('yes\nor: {"a":1}', False)
    single = make_reference_excerpt("yes")
    assert single is not None
    assert single.text == "yes"


@pytest.mark.parametrize(
    ("text", "length", "is_cut"),
    [
        ("a" * 300, 300, False),
        ("a" * 301, 300, True),
        ("a" * 1_000_000, 300, True),
        ("\N{GRINNING FACE}" * 301, 300, True),
        ("a" + "\n" * 1_000_000 + "b", 1, True),
        ("a" + "\n" * 1_000 + "b", 3, False),
        ("a\n" * 8, 15, False),
        ("a\n" * 9, 15, True),
        ("  a  ", 1, False),
    ],
)
def test_texts_are_cut_by_characters_and_lines(text: str, length: int, is_cut: bool) -> None:
    excerpt = cut_text(text)
    assert (len(excerpt.text), excerpt.is_cut) == (length, is_cut)


@pytest.mark.parametrize(
    "command", ["\0", "\x07", "\x1b[2J", "\x7f", "\x9b", "\u061c", "\u200f", "\u202e", "\u2066", "\u2069", "\U000e0041"]
)
def test_what_commands_a_terminal_or_turns_the_direction_is_replaced(command: str) -> None:
    assert cut_text(f"a{command}b").text == f"a{REPLACED}{command[1:]}b"


def test_what_belongs_to_a_script_or_an_emoji_stays() -> None:
    for text in ("\u0645\u06cc\u200c\u062e\u0648", "👩\u200d💻", "שלום", "a\tb", "e\u0301"):
        assert cut_text(text).text == text


def test_every_line_end_is_one_line_end() -> None:
    assert cut_text("a\r\nb\rc\u2028d\x85e").text == "a\nb\nc\nd\ne"


@given(st.text(max_size=4000), st.booleans())
def test_an_excerpt_is_small_and_harmless_and_says_when_something_is_left_out(text: str, is_cut: bool) -> None:
    excerpt = cut_text(text, is_cut=is_cut)
    assert len(excerpt.text) <= MAX_CHARACTERS
    assert excerpt.text.count("\n") < 8
    assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", excerpt.text) is None
    assert excerpt.is_cut or not is_cut
    if not excerpt.is_cut:
        assert list(filter(str.isalnum, excerpt.text)) == list(filter(str.isalnum, text))
