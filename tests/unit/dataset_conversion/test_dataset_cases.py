"""Files met in practice, each with the outcome that it must get."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
from dataset_conversion.conversion import Conversion, DatasetInvalidError, FileFormat, NulRule, convert

CASES = Path(__file__).parents[2] / "cases" / "datasets"
OUTCOMES: dict[str, dict[str, Any]] = json.loads((CASES / "outcomes.json").read_text())


def convert_case(name: str, *, nul: NulRule = "refuse") -> tuple[Conversion, bytes]:
    written = BytesIO()
    with (CASES / name).open("rb") as source:
        conversion = convert(source, cast("FileFormat", name.rpartition(".")[2]), written.write, nul=nul)
    return conversion, written.getvalue()


def refuse_case(name: str) -> DatasetInvalidError:
    with pytest.raises(DatasetInvalidError) as refusal:
        convert_case(name)
    return refusal.value


@pytest.mark.parametrize("name", [name for name, outcome in OUTCOMES.items() if outcome["outcome"] == "published"])
def test_the_file_is_published(name: str) -> None:
    conversion, written = convert_case(name)
    rows = [json.loads(line) for line in written.splitlines()]
    assert conversion.records == len(rows) == OUTCOMES[name]["records"]
    assert conversion.bytes == len(written)
    if "rows" in OUTCOMES[name]:
        assert rows == OUTCOMES[name]["rows"]


@pytest.mark.parametrize("name", [name for name, outcome in OUTCOMES.items() if outcome["outcome"] == "refused"])
def test_the_file_is_refused(name: str) -> None:
    outcome = OUTCOMES[name]
    errors = refuse_case(name).errors
    assert any(
        error.reason == outcome["reason"]
        and error.row == outcome.get("row", error.row)
        and error.field == outcome.get("field", error.field)
        for error in errors
    ), errors


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("j06_trailing_comma.jsonl", ["trailing comma"]),
        ("j07_json_array.jsonl", ["JSON array", "one object a line"]),
        ("j08_pretty_printed.jsonl", ["pretty-printed"]),
        ("j10_latin1.jsonl", ["byte 23", "Latin-1"]),
        ("j20_dup_ids.jsonl", ["row 1"]),
        ("j28_single_quotes.jsonl", ["single quotes"]),
        ("j29_comments.jsonl", ["comment"]),
        ("j32_line_4MiB_plus_1.jsonl", ["4194304", "4194325"]),
        ("j37_gzip.jsonl", ["gzip"]),
    ],
)
def test_the_message_says_what_the_note_asks_for(name: str, words: list[str]) -> None:
    message = refuse_case(name).errors[0].message
    assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("name", "rows"),
    [("j15_nan_inf.jsonl", [1, 2, 3]), ("j24_scalar_rows.jsonl", [1, 2, 3, 4]), ("j06_trailing_comma.jsonl", [1, 2])],
)
def test_the_whole_file_is_checked(name: str, rows: list[int]) -> None:
    errors = refuse_case(name).errors
    assert [error.row for error in errors if error.reason == OUTCOMES[name]["reason"]] == rows


def test_an_integer_beyond_2_to_the_53_is_exact() -> None:
    errors = refuse_case("j17_big_int.jsonl").errors
    assert [(error.row, error.reason) for error in errors if error.field == "/n"] == [(2, "integer_range")]


def test_a_nul_is_replaced_on_request() -> None:
    conversion, written = convert_case("j14_nul_escape.jsonl", nul="replace")
    assert json.loads(written)["input"] == "x\ufffdy"
    assert conversion.notes.replaced_nuls == 1


@pytest.mark.parametrize(
    ("name", "note", "value"),
    [
        ("j02_bom.jsonl", "byte_order_mark", True),
        ("j03_crlf.jsonl", "crlf_lines", 2),
        ("j04_blank_lines.jsonl", "blank_lines", 4),
        ("j05_no_final_newline.jsonl", "final_newline_missing", True),
        ("j22_missing_ids.jsonl", "derived_ids", 3),
        ("j01_plain.jsonl", "aliases", {"expected -> reference": 2}),
        ("j38_chat_messages.jsonl", "aliases", {"ideal -> reference": 1}),
        ("t22_pandas_index.parquet", "dropped_columns", ["__index_level_0__"]),
        ("t24_context_list.parquet", "aliases", {"contexts -> context": 1}),
    ],
)
def test_what_was_accepted_is_noted(name: str, note: str, value: object) -> None:
    assert getattr(convert_case(name)[0].notes, note) == value


def test_the_same_content_has_the_same_digest_in_both_formats() -> None:
    assert convert_case("p01_plain.parquet")[0].sha256 == convert_case("p01_plain_twin.jsonl")[0].sha256


@pytest.mark.parametrize(
    "name", ["j02_bom.jsonl", "j03_crlf.jsonl", "j04_blank_lines.jsonl", "j05_no_final_newline.jsonl"]
)
def test_how_lines_are_written_does_not_change_the_digest(name: str) -> None:
    source = (CASES / name).read_bytes().removeprefix(b"\xef\xbb\xbf")
    plain = b"".join(line.strip() + b"\n" for line in source.splitlines() if line.strip())
    assert convert_case(name)[0].sha256 == convert(plain, "jsonl", lambda _: None).sha256


@pytest.mark.parametrize("name", [name for name, outcome in OUTCOMES.items() if outcome["outcome"] == "published"])
def test_what_was_published_can_be_published_again(name: str) -> None:
    conversion, written = convert_case(name)
    assert convert(written, "jsonl", lambda _: None).sha256 == conversion.sha256
