"""JSONL to canonical rows: every rule, on every way that a row can take through the converter."""

import hashlib
import json
from io import BytesIO
from typing import Any

import pytest
import rfc8785
from dataset_conversion.conversion import Conversion, DatasetInvalidError, convert
from hypothesis import given, settings
from hypothesis import strategies as st
from records.limits import Limits
from records.row_errors import RowError


def publish(source: bytes | str, **options: Any) -> tuple[Conversion, bytes]:
    written = BytesIO()
    source = source.encode() if isinstance(source, str) else source
    conversion = convert(source, "jsonl", written.write, **options)
    return conversion, written.getvalue()


def refuse(source: bytes | str, **options: Any) -> tuple[RowError, ...]:
    with pytest.raises(DatasetInvalidError) as refusal:
        publish(source, **options)
    return refusal.value.errors


def places(errors: tuple[RowError, ...]) -> list[tuple[int | None, str | None, str]]:
    return [(error.row, error.field, error.reason) for error in errors]


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# --- what comes out
def test_rows_come_out_canonical_in_their_order_with_one_digest() -> None:
    conversion, written = publish('{"input" : "q", "id":"b"}\n{"id":"a","score":1.50,"input":[1e2]}\n')
    assert written == b'{"id":"b","input":"q"}\n{"id":"a","input":[100],"metadata":{"score":1.5}}\n'
    assert conversion.sha256 == hashlib.sha256(written).hexdigest()
    assert (conversion.records, conversion.bytes) == (2, len(written))
    assert conversion.shards[0].offset == 0


def test_a_thousand_and_one_rows_keep_their_pairing() -> None:
    conversion, written = publish(lines(*({"id": str(n), "input": n, "expected": n} for n in range(1001))))
    rows = [json.loads(line) for line in written.splitlines()]
    assert all(row["input"] == row["reference"] == n for n, row in enumerate(rows))
    assert [shard.record for shard in conversion.shards] == [0, 1000]
    assert written[conversion.shards[1].offset :] == b'{"id":"1000","input":1000,"reference":1000}\n'


def test_text_is_kept_character_by_character() -> None:
    text = 'e\u0301 \u00e9 \u2028 \u0085 \ufeff \U0001f600 \\ " / \x7f'
    _, written = publish(lines({"id": "a", "input": text}))
    assert json.loads(written)["input"] == text


def test_line_separators_inside_texts_do_not_end_lines() -> None:
    conversion, _ = publish('{"id":"a","input":"x\u2028y\u0085z"}\n')
    assert conversion.records == 1


def test_names_are_sorted_by_utf_16() -> None:
    row = {"id": "a", "input": {"\ufb33": 1, "\U0001f600": 2, "€": 3}}
    for source in (lines(row), lines(row, row | {"id": "b"}, row | {"id": "c"})):
        _, written = publish(source)
        assert written.splitlines()[-1] == rfc8785.dumps(json.loads(written.splitlines()[-1]))


def test_large_integers_are_exact_and_large_doubles_come_again() -> None:
    numbers = f"[{2**53 + 1},{2**64 - 1},{-(2**63)},1e21,100000000000000000000,1e20,-0.0,-0,5e-324,0.000001]"
    conversion, written = publish(f'{{"id":"a","input":{numbers}}}\n')
    expected = (
        f"[{2**53 + 1},{2**64 - 1},{-(2**63)},1e+21,100000000000000000000,100000000000000000000,0,0,5e-324,0.000001]"
    )
    assert written == f'{{"id":"a","input":{expected}}}\n'.encode()
    assert publish(written)[0].sha256 == conversion.sha256


# --- all ways lead to one end
name = st.sampled_from(
    [
        *("id", "input", "output", "reference", "context", "metadata", "question", "prompt", "expected", "answer"),
        *("contexts", "tags", "x", "a:b", "é", "\ufb33", "\U0001f600", ""),
    ]
)
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
text = st.text(characters, max_size=6) | st.sampled_from([":", "u003a"])
number = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalar = st.none() | st.booleans() | number | text
value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(name, inner, max_size=3), max_leaves=6
)
lists = st.lists(value, max_size=2)
objects = st.dictionaries(text, value, max_size=2)
shape = st.lists(name, unique=True, max_size=6)


@st.composite
def files(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of few shapes, so that readers made for a shape are used, missed and used again."""
    shapes = draw(st.lists(shape, min_size=1, max_size=2))
    rows: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 8))):
        row = {member: draw(value) for member in shapes[draw(st.integers(0, len(shapes) - 1))]}
        for member, kind in (("context", list), ("contexts", list), ("metadata", dict)):
            if member in row and not isinstance(row[member], kind):
                row[member] = draw(
                    st.lists(value, max_size=2) if kind is list else st.dictionaries(text, value, max_size=2)
                )
        rows.append(row | {"id": f"id {number}"})
    return rows


def outcome(source: str) -> bytes | list[tuple[str | None, str]]:
    try:
        return publish(source)[1]
    except DatasetInvalidError as refusal:
        return [(error.field, error.reason) for error in refusal.errors]


@settings(max_examples=60, deadline=None)
@given(files(), st.booleans())
def test_rows_come_out_the_same_together_and_alone(rows: list[dict[str, Any]], ensure_ascii: bool) -> None:
    texts = [json.dumps(row, ensure_ascii=ensure_ascii) + "\n" for row in rows]
    alone = [outcome(text) for text in texts]
    together = outcome("".join(texts))
    if isinstance(together, bytes):
        assert together == b"".join(part for part in alone if isinstance(part, bytes))
        assert not any(isinstance(part, list) for part in alone)
        for line in together.splitlines():
            assert publish(line)[1] == line + b"\n"
    else:
        assert together == [problem for part in alone if isinstance(part, list) for problem in part][:20]


# --- what is refused, where
PLAIN = '{"id":"%d","input":"q","x":[1]}\n'


@pytest.mark.parametrize("rows_before", [0, 1, 5])
@pytest.mark.parametrize(
    ("bad", "field", "reason"),
    [
        ('{"id":"z","input":1,"input":2}', "/input", "duplicate_key"),
        ('{"id":"z","input":{"a":1,"b":[{"c":1,"c":1}]}}', "/input/b/0/c", "duplicate_key"),
        (r'{"id":"z","input":1,"x":1,"x":"\u003a"}', "/x", "duplicate_key"),
        (r'{"id":"z","input":{"a":1,"\u0061":2}}', "/input/a", "duplicate_key"),
        ('{"id":"z","input":"q","x":[1,1e999]}', "/x/1", "not_finite"),
        ('{"id":"z","input":"q","x":-1e999}', "/x", "not_finite"),
        ('{"id":"z","input":{"y":NaN}}', "/input/y", "not_finite"),
        ('{"id":"z","input":-Infinity}', "/input", "not_finite"),
        ('{"id":"z","input":"q","x":[18446744073709551616]}', "/x/0", "integer_range"),
        ('{"id":"z","input":-9223372036854775809}', "/input", "integer_range"),
        ('{"id":"z","input":' + "9" * 5000 + "}", "/input", "integer_range"),
        (r'{"id":"z","input":"q","x":["\udc00"]}', "/x/0", "surrogate"),
        (r'{"id":"z","input":"\ud800\ud800"}', "/input", "surrogate"),
        (r'{"id":"z","input":"q","x":["a\u0000"]}', "/x/0", "nul"),
        (r'{"id":"z","input":{"a\u0000":1}}', "/input/a\ufffd", "nul"),
        ('{"id":1.0,"input":"q","x":[1]}', "/id", "invalid_id"),
        ('{"id":1e0,"input":"q","x":[1]}', "/id", "invalid_id"),
        ('{"id":true,"input":"q","x":[1]}', "/id", "invalid_id"),
        ('{"id":"z","x":[1]}', "/input", "missing_input"),
        ('{"id":"z","input":"q","metadata":{"x":1},"x":[1]}', "/x", "alias_clash"),
        ('{"id":"z","input":"q","context":5}', "/context", "invalid_field"),
        ('["z"]', None, "not_object"),
        ("7", None, "not_object"),
        ('{"id":"z","input":"q"', None, "not_json"),
        ('{"id":"z","input":"q","x":[1]} {}', None, "not_json"),
        ('{"id":"z","input":"a\tb"}', None, "not_json"),
    ],
)
def test_a_bad_row_is_refused_at_its_place(bad: str, field: str | None, reason: str, rows_before: int) -> None:
    source = "".join(PLAIN % number for number in range(rows_before)) + bad + "\n" + PLAIN % 99
    assert places(refuse(source)) == [(rows_before + 1, field, reason)]


def test_line_numbers_count_blank_lines() -> None:
    assert places(refuse('{"id":"a","input":1}\n\n  \n{"id":}\n')) == [(4, None, "not_json")]


def test_a_file_is_checked_up_to_twenty_errors() -> None:
    errors = refuse("{\n".join("" for _ in range(2)) + '{"id":"a"}\n' * 50)
    assert len(errors) == 1  # pretty-printed in its first line: the whole file is
    assert len(refuse(PLAIN % 1 + "{'a'}\n" * 50)) == 20


def test_several_faults_of_one_row_are_told_together() -> None:
    assert places(refuse('{"id":"a","x":NaN,"y":"\\ud800","context":3}\n')) == [
        (1, "/x", "not_finite"),
        (1, "/y", "surrogate"),
        (1, "/input", "missing_input"),
        (1, "/context", "invalid_field"),
    ]


def test_the_id_of_a_refused_row_counts_for_repeats() -> None:
    assert places(refuse('{"id":"a","input":NaN}\n{"id":"a","input":1}\n')) == [
        (1, "/input", "not_finite"),
        (2, "/id", "duplicate_id"),
    ]


def test_integer_and_text_ids_meet() -> None:
    assert places(refuse('{"id":7,"input":1}\n{"id":"7","input":1}\n')) == [(2, "/id", "duplicate_id")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"a":1,}', "trailing comma"),
        ('{"a":[1,]}', "trailing comma"),
        ('{"a":1},', "trailing comma"),
        ("{'a':1}", "single quotes"),
        ("{\"a\":'x'}", "single quotes"),
        ('{"a":1} // note', "comment"),
        ('{"a":1, /* x */ "b":2}', "comment"),
        ("# note", "comment"),
        ('{"a":None}', "Python's None"),
        ('{"a":True}', "Python's True"),
        ('{"a":undefined}', "undefined"),
        ("{a:1}", "without quotes"),
        ("{\u201ca\u201d:1}", "typographic quotes"),
        ('{"a":1}{"a":2}', "another row"),
        ('{"a":"x', "no end"),
        ('{"a":"\x01"}', "U+0001"),
        (r'{"a":"\x41"}', "backslash"),
        (r'{"a":"\u12"}', "backslash"),
        ('\ufeff{"a":1}', "byte order mark"),
        ('{"a":01}', "comma or the end"),
        ('{"a":.5}', "a value"),
        ('{"a" 1}', "a colon"),
        ('{"a":1} x', "follows the row"),
        ('{"a":', "pretty-printed"),
    ],
)
def test_the_likely_cause_is_named(line: str, words: str) -> None:
    errors = refuse(PLAIN % 1 + line + "\n")
    assert (errors[0].row, errors[0].reason) == (2, "not_json")
    assert words in errors[0].message


def test_messages_hold_no_text_of_the_dataset() -> None:
    secret = "the-secret"
    source = (
        f'{{"id":"a","input":"{secret}","x":NaN}}\n{{"id":"b","input":"{secret}\n{{"input":"{secret}" "{secret}"}}\n'
    )
    assert not any(secret in error.message for error in refuse(source))


@pytest.mark.parametrize(
    ("start", "reason", "word"),
    [
        (b"PK\x03\x04", "wrong_format", "ZIP"),
        (b"\x28\xb5\x2f\xfd", "wrong_format", "Zstandard"),
        (b"PAR1", "wrong_format", "format=parquet"),
        ('{"id":1}'.encode("utf-16"), "not_utf8", "UTF-16"),
        ('{"id":1}'.encode("utf-16-le"), "not_utf8", "UTF-16"),
        ('{"id":1}'.encode("utf-16-be"), "not_utf8", "UTF-16"),
        ('{"id":1}'.encode("utf-32-le"), "not_utf8", "UTF-32"),
    ],
)
def test_another_kind_of_file_is_recognized(start: bytes, reason: str, word: str) -> None:
    (error,) = refuse(start + b"\n" * 30)
    assert (error.row, error.reason) == (1, reason)
    assert word in error.message


def test_a_json_array_over_several_lines_is_one_error() -> None:
    (error,) = refuse('[\n{"id":"a","input":1},\n{"id":"b","input":1}\n]\n')
    assert (error.row, error.reason) == (1, "not_object")
    assert "JSON array" in error.message


def test_bytes_that_are_not_utf_8_are_found_in_any_line() -> None:
    source = (PLAIN % 1).encode() + b'{"id":"z","input":"\xff\xfe"}\n'
    assert places(refuse(source)) == [(2, None, "not_utf8")]


# --- limits
def nested(depth: int) -> str:
    return '{"id":"a","input":' + "[" * (depth - 1) + "]" * (depth - 1) + "}\n"


def test_nesting_counts_from_the_row() -> None:
    assert publish(nested(64))[0].records == 1
    (error,) = refuse(nested(65))
    assert (error.row, error.field, error.reason) == (1, None, "depth")
    assert "64" in error.message


def test_brackets_in_texts_are_no_nesting() -> None:
    row = {"id": "a", "input": '[{"' * 200, "x": ["]"] * 80, "y": "\\" * 7 + '"['}
    assert publish(lines(row))[0].records == 1


def test_texts_with_brackets_do_not_hide_nesting() -> None:
    hidden = '["]",' * 70 + '"["' + ',"["]' * 70
    assert places(refuse('{"id":"a","input":' + hidden + "}\n")) == [(1, None, "depth")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
@pytest.mark.parametrize("size", [99_999, 100_000, 100_001])
def test_a_row_is_measured_without_its_line_end(end: bytes, size: int) -> None:
    limits = Limits(row_bytes=100_000)
    row = b'{"id":"a","input":""}'
    source = row[:-2] + b"x" * (size - len(row)) + row[-2:] + end
    if size <= 100_000:
        assert publish(source, limits=limits)[0].records == 1
        return
    (error,) = refuse(source, limits=limits)
    assert (error.row, error.reason) == (1, "row_too_large")
    assert "100001 bytes" in error.message
    assert "100000 bytes" in error.message


def test_rows_after_an_overlong_one_are_checked() -> None:
    source = PLAIN % 1 + '{"input":"' + "x" * 700_000 + '"}\n' + '{"id":"b"}\n'
    assert places(refuse(source, limits=Limits(row_bytes=1000))) == [
        (2, None, "row_too_large"),
        (3, "/input", "missing_input"),
    ]


def test_a_canonical_row_may_not_be_longer_than_the_limit_either() -> None:
    source = '{"id":"a","x":[' + "1e9," * 20 + '1],"input":1}\n'
    (error,) = refuse(source, limits=Limits(row_bytes=len(source) + 20))
    assert error.reason == "row_too_large"


def test_a_file_over_the_limit_is_refused_with_the_limit() -> None:
    source = (PLAIN % 1).encode()
    assert publish(source, limits=Limits(input_bytes=len(source)))[0].source_bytes == len(source)
    (error,) = refuse(source, limits=Limits(input_bytes=len(source) - 1))
    assert (error.row, error.reason) == (None, "too_large")
    assert str(len(source) - 1) in error.message


def test_too_many_records_are_refused() -> None:
    source = "".join(PLAIN % number for number in range(101))
    assert places(refuse(source, limits=Limits(records=100))) == [(101, None, "too_many_records")]


# --- what is accepted
def test_only_the_first_mark_is_taken_away() -> None:
    assert publish(b'\xef\xbb\xbf{"id":"a","input":1}')[0].notes.byte_order_mark
    assert places(refuse(b'\xef\xbb\xbf\xef\xbb\xbf{"id":"a","input":1}')) == [(1, None, "not_json")]


def test_line_ends_of_both_kinds_may_be_mixed() -> None:
    conversion, _ = publish(b'{"id":"a","input":1}\r\n{"id":"b","input":1}\n{"id":"c","input":1}\r\n')
    assert (conversion.records, conversion.notes.crlf_lines) == (3, 2)


@pytest.mark.parametrize("source", [b"", b"\n", b" \r\n\t\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_a_file_without_rows_is_refused(source: bytes) -> None:
    assert places(refuse(source)) == [(None, None, "empty")]


def test_nul_characters_are_replaced_on_request() -> None:
    source = PLAIN % 1 + r'{"id":"z","input":"a\u0000b","x":["\\u0000"]}' + "\n"
    conversion, written = publish(source, nul="replace")
    assert json.loads(written.splitlines()[1]) == {"id": "z", "input": "a\ufffdb", "metadata": {"x": ["\\u0000"]}}
    assert conversion.notes.replaced_nuls == 1


def test_a_backslash_before_u0000_is_no_nul() -> None:
    assert publish(r'{"id":"a","input":"\\u0000"}' + "\n")[0].records == 1


def test_derived_ids_of_equal_rows_are_numbered() -> None:
    conversion, written = publish('{"input":1}\n{"input":1,"id":null}\n{"id":"","input":1.0}\n{"input":2}\n')
    ids = [json.loads(line)["id"] for line in written.splitlines()]
    assert ids[0] == "r-" + hashlib.sha256(b'{"input":1}').hexdigest()[:16]
    assert ids[1:3] == [f"{ids[0]}-2", f"{ids[0]}-3"]
    assert conversion.notes.derived_ids == 4
    assert written == b"".join(rfc8785.dumps(json.loads(line)) + b"\n" for line in written.splitlines())


def test_derived_ids_come_after_the_context() -> None:
    _, written = publish('{"input":1,"contexts":["a","id"]}\n')
    assert written == rfc8785.dumps(json.loads(written)) + b"\n"
    content = b'{"context":["a","id"],"input":1}'
    assert json.loads(written)["id"] == "r-" + hashlib.sha256(content).hexdigest()[:16]


def test_a_mapping_is_applied_to_every_row() -> None:
    source = lines(*({"key": n, "q": {"text": n}, "input": "old"} for n in range(5)))
    conversion, written = publish(source, mapping={"id": "key", "input": "/q/text", "reference": "/nothing"})
    assert json.loads(written.splitlines()[3]) == {
        "id": "3",
        "input": 3,
        "metadata": {"input": "old", "q": {"text": 3}},
    }
    assert conversion.notes.unmatched_mapping == ["reference"]


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64])
def test_pieces_in_which_a_file_arrives_do_not_matter(piece: int) -> None:
    source = b'\xef\xbb\xbf{"id":"a","input":"\xc3\xa9"}\r\n\r\n{"id":"b","input":1}'

    class Trickle(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or piece, piece))

    conversion = convert(Trickle(source), "jsonl", lambda _: None)
    assert conversion.sha256 == publish(source)[0].sha256
    assert conversion.notes == publish(source)[0].notes


# --- depth
def nest(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize("name", ["input", "extra", "metadata", "question"])
def test_a_row_of_the_greatest_depth_is_published_and_what_comes_out_too(name: str) -> None:
    _, written = publish(f'{{"input":"q","{name}":{nest(63)}}}\n' if name != "input" else f'{{"input":{nest(63)}}}\n')
    assert publish(written)[1] == written


@pytest.mark.parametrize("name", ["input", "extra", "question", "reference"])
def test_a_row_that_is_deeper_is_refused(name: str) -> None:
    assert places(refuse(f'{{"output":"q","{name}":{nest(64)}}}\n'))[0] == (1, None, "depth")


def test_metadata_is_not_counted_as_a_level_so_that_our_own_output_comes_in_again() -> None:
    _, written = publish(f'{{"input":"q","metadata":{nest(64)}}}\n')
    assert publish(written)[1] == written
    assert places(refuse(f'{{"input":"q","metadata":{nest(65)}}}\n')) == [(1, None, "depth")]


def test_metadata_that_a_mapping_moves_counts_where_it_goes() -> None:
    source = f'{{"output":"q","metadata":{nest(64)}}}\n'
    assert places(refuse(source, mapping={"input": "metadata"})) == [(1, None, "depth")]


# --- errors are answers and rows of a database
def test_very_long_names_are_cut_in_errors() -> None:
    name = "n" * 100_000
    (error,) = refuse(f'{{"input":"q","{name}":1,"{name}":2}}\n')
    assert error.field is not None
    assert len(error.field) <= 500
    assert len(error.message) <= 1000


def test_nul_characters_in_names_are_replaced_in_errors() -> None:
    (error,) = refuse('{"input":"q","a\\u0000b":1}\n')
    assert (error.field, error.reason) == ("/a\ufffdb", "nul")


def test_no_text_of_a_value_is_in_an_error() -> None:
    source = (
        '{"input":"sesame","input":"sesame"}\n{"input":"sesame\\ud800"}\n{"input":"sesame" sesame}\n'
        '{"metadata":"sesame","input":1}\n{"id":["sesame"],"input":1}\n{"usage":"sesame","input":1}\n["sesame"]\nsesame\n'
    )
    assert all("sesame" not in f"{error.field} {error.message}" for error in refuse(source))


def test_twenty_errors_are_enough() -> None:
    errors = refuse('{"id":1.5,"input":"q"}\n' * 30)
    assert [error.row for error in errors] == list(range(1, 21))


def test_aliases_that_are_null_in_the_first_rows_are_found_in_later_ones() -> None:
    rows = [{"id": str(n), "input": "q", "output": None, "expected": None if n < 5 else "e"} for n in range(9)]
    _, written = publish(lines(*rows))
    published = [json.loads(line) for line in written.splitlines()]
    assert [row.get("reference") for row in published] == [None] * 5 + ["e"] * 4
    assert ["metadata" in row for row in published] == [True] * 5 + [False] * 4
