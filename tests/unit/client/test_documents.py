"""YAML means what it seems to: the API gets what was written."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from evalward.command_line.documents import read_document, read_pairs
from evalward.errors import ConfigurationError


def read(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return read_document(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1.5e3", -1500.0),
        ("0.7", 0.7),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("2027-01-31", "2027-01-31"),
        ("2027-01-31T00:00:00Z", "2027-01-31T00:00:00Z"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        (".inf", ".inf"),
        ("0x1F", "0x1F"),
        ("1.10.0", "1.10.0"),
        ('"true"', "true"),
        ("'0 2 * * *'", "0 2 * * *"),
        ("[a, 1]", ["a", 1]),
        ("{name: a}", {"name": "a"}),
        ("ä ☃", "ä ☃"),
    ],
)
def test_plain_values_are_those_of_json(tmp_path: Path, text: str, value: Any) -> None:
    read_value = read(tmp_path, f"value: {text}\n")["value"]
    assert read_value == value
    assert type(read_value) is type(value)


def test_json_is_yaml(tmp_path: Path) -> None:
    assert read(tmp_path, '{"a": [1, 2.5, "x", null, false], "b": {}}') == {"a": [1, 2.5, "x", None, False], "b": {}}


def test_anchors_are_read(tmp_path: Path) -> None:
    assert read(tmp_path, "a: &x {b: 1}\nc: *x\n") == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: 1\na: 2\n", "'a' stands twice"),
        ("1: a\n", "no text"),
        ("a: [1\n", "neither YAML nor JSON"),
        ("- a\n", "no object"),
        ("", "no object"),
        ("a: !!python/object/apply:os.system [ls]\n", "neither YAML nor JSON"),
        ("a: 1\n---\nb: 2\n", "neither YAML nor JSON"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what):
        read(tmp_path, text)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_document(tmp_path / "none.yaml")


def test_pairs() -> None:
    assert read_pairs(["a=1", "b=x=y", "c="], "--label") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(ConfigurationError, match="--label 'a'"):
        read_pairs(["a"], "--label")


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_standard_input_is_utf8_whatever_the_locale(monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    content = f"\ufeffname: Zürich{ending}labels: {{a: b}}{ending}".encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))
    assert read_document(Path("-")) == {"name": "Zürich", "labels": {"a": "b"}}
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ConfigurationError, match="is closed"):
        read_document(Path("-"))
