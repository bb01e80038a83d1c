from __future__ import annotations

import re
from pathlib import Path

import pytest
from coordination.errors import ProblemError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
DECISIONS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
SQL = ROOT / "layers/coordination/src/coordination/sql"


def namespaces_in_sql(text: str) -> set[str]:
    return set(re.findall(r"advisory_lock_id\(\s*'([a-z-]+)'", text))


def namespaces_in_python(text: str) -> set[str]:
    return set(re.findall(r"take_lock\(\s*\w+,\s*\"([a-z-]+)\"", text))


def listed_namespaces(text: str) -> set[str]:
    section = text.split("## Advisory locks")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `([a-z-]+)`", section, re.MULTILINE))


def test_locks_document_lists_exactly_the_namespaces_in_use() -> None:
    used: set[str] = set()
    for path in (*SQL.glob("migrations/*.sql"), *SQL.glob("queries/*.sql")):
        used |= namespaces_in_sql(path.read_text())
    for room in ("functions", "layers"):
        for path in (ROOT / room).rglob("*.py"):
            used |= namespaces_in_python(path.read_text())
    assert used == listed_namespaces((DOCS / "locks.md").read_text())


def test_search_for_namespaces_finds_both_ways_to_take_a_lock() -> None:
    assert namespaces_in_sql("pg_advisory_xact_lock(coordination.advisory_lock_id(\n    'some-thing', x))") == {
        "some-thing"
    }
    assert namespaces_in_python('take_lock(transaction, "some-thing", name)') == {"some-thing"}


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_decision_has_its_four_parts_and_its_number(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Alternatives", "Consequences"]
    assert text.startswith(f"# {int(path.name[:4])}. ")


def test_index_of_decisions_is_complete_and_in_order() -> None:
    index = (DOCS / "decisions" / "README.md").read_text()
    titles = {path.name: path.read_text().splitlines()[0].split(". ", 1)[1] for path in DECISIONS}
    rows = re.findall(r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", index, re.MULTILINE)
    assert [(number, name, title) for number, name, title in rows] == [
        (name[:4], name, title) for name, title in titles.items()
    ]
    assert [int(path.name[:4]) for path in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{path.name}: {target}"
        for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text())
        if not re.match(r"https?:|mailto:", target) and not (path.parent / target).exists()
    ]
    assert broken == []


def test_glossary_names_a_word_once() -> None:
    table = (DOCS / "glossary.md").read_text().split("## Contract names")[0]
    words = re.findall(r"^\| ([^|]+?) \|", table, re.MULTILINE)[2:]
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("word", "instead"),
    [("workspace", "project"), ("watermark", "cursor"), ("mutex", "advisory lock")],
)
def test_names_in_the_code_keep_to_the_glossary(word: str, instead: str) -> None:
    named = re.compile(rf"\b(?:def|class)\s+\w*{word}|\b\w*{word}\w*\s*(?::\s*\w+)?\s*=[^=]", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (ROOT / "layers/coordination").rglob("*.py")
        if (match := named.search(path.read_text()))
    ]
    assert found == [], f"say {instead}"


def test_codes_of_problems_are_stable_words_and_each_is_one_situation() -> None:
    kinds: list[type[ProblemError]] = []
    waiting = [ProblemError]
    while waiting:
        kind = waiting.pop()
        kinds.append(kind)
        waiting += kind.__subclasses__()
    codes = [kind.code for kind in kinds]
    assert len(codes) == len(set(codes))
    for kind in kinds:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
        assert 400 <= kind.status < 600
        assert kind.__name__.endswith("Error")
        assert kind.title
        assert not kind.title.endswith(".")
