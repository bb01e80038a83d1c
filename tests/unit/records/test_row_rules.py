"""What becomes of the members of a row: aliases, mapping, metadata, types, ids."""

import json
from typing import Any

import pytest
from records.row_assembly import ReadyRow, RowAssembly, RowRefusedError
from records.row_fields import ALIASES, MappingInvalidError, RowFields


def assemble(row: dict[str, Any], mapping: dict[str, str] | None = None) -> ReadyRow:
    return RowAssembly(mapping).assemble(1, json.loads(json.dumps(row)))


def record(row: dict[str, Any], mapping: dict[str, str] | None = None) -> dict[str, Any]:
    return json.loads(assemble(row, mapping).text)


def problems(row: dict[str, Any], mapping: dict[str, str] | None = None) -> list[tuple[str | None, str]]:
    with pytest.raises(RowRefusedError) as refusal:
        assemble(row, mapping)
    return [(problem.field, problem.reason) for problem in refusal.value.problems]


def test_canonical_fields_stay_and_everything_else_becomes_metadata() -> None:
    row = {"id": "a", "input": "q", "output": 1, "reference": [1], "topic": "x", "score": 2}
    assert record(row) == {
        "id": "a",
        "input": "q",
        "output": 1,
        "reference": [1],
        "metadata": {"topic": "x", "score": 2},
    }


@pytest.mark.parametrize(("alias", "field"), [(alias, field) for field, names in ALIASES.items() for alias in names])
def test_every_alias_fills_its_field(alias: str, field: str) -> None:
    row = {"id": "a", "input": "q", alias: ["v"]}
    if field == "input":
        del row["input"]
    ready = assemble(row)
    assert json.loads(ready.text)[field] == ["v"]
    assert ready.origin.changes == (f"{alias} -> {field}",)


def test_the_alias_that_is_listed_first_wins_and_the_others_are_metadata() -> None:
    row = {"id": "a", "prompt": "p", "question": "q", "label": 1, "ideal": 2}
    assert record(row) == {"id": "a", "input": "q", "reference": 2, "metadata": {"prompt": "p", "label": 1}}


def test_an_alias_does_not_replace_a_field_that_is_there() -> None:
    assert record({"id": "a", "input": "i", "question": "q"}) == {
        "id": "a",
        "input": "i",
        "metadata": {"question": "q"},
    }


def test_an_alias_replaces_a_null() -> None:
    assert record({"id": "a", "input": None, "question": "q"}) == {"id": "a", "input": "q"}


def test_an_alias_that_is_null_does_not_count() -> None:
    assert record({"id": "a", "question": None, "prompt": "p"}) == {
        "id": "a",
        "input": "p",
        "metadata": {"question": None},
    }


def test_nulls_are_kept() -> None:
    row = {"id": "a", "input": "q", "output": None, "reference": None, "context": None, "usage": None, "note": None}
    assert record(row) == {
        "id": "a",
        "input": "q",
        "output": None,
        "reference": None,
        "context": None,
        "usage": None,
        "metadata": {"note": None},
    }


def test_a_null_metadata_gives_way_to_gathered_members() -> None:
    assert record({"id": "a", "input": 1, "metadata": None, "x": 2}) == {"id": "a", "input": 1, "metadata": {"x": 2}}


def test_a_member_that_metadata_already_has_is_refused() -> None:
    assert problems({"id": "a", "input": 1, "metadata": {"x": 1}, "x": 2}) == [("/x", "alias_clash")]


def test_an_alias_that_loses_may_clash_too() -> None:
    row = {"id": "a", "input": 1, "metadata": {"question": 1}, "question": 2}
    assert problems(row) == [("/question", "alias_clash")]


@pytest.mark.parametrize("row", [{"id": "a"}, {"id": "a", "input": None}, {"id": "a", "output": None, "reference": 1}])
def test_a_row_without_input_and_output_is_refused(row: dict[str, Any]) -> None:
    assert problems(row) == [("/input", "missing_input")]


@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_an_input_may_be_anything_but_null(value: Any) -> None:
    assert record({"id": "a", "input": value}) == {"id": "a", "input": value}


def test_an_output_alone_is_enough() -> None:
    assert record({"id": "a", "output": "o"}) == {"id": "a", "output": "o"}


def test_four_choices_stay_one_record() -> None:
    assert record({"id": "a", "input": {"choices": ["a", "b", "c", "d"]}}) == {
        "id": "a",
        "input": {"choices": ["a", "b", "c", "d"]},
    }


def test_dots_in_names_are_data() -> None:
    row = {"id": "a", "input": 1, "provenance": {"a.b": 1}, "x.y": 2}
    assert record(row) == {"id": "a", "input": 1, "metadata": {"provenance": {"a.b": 1}, "x.y": 2}}


def test_a_context_that_is_one_text_becomes_a_list_of_it() -> None:
    ready = assemble({"id": "a", "input": 1, "documents": "one | two"})
    assert json.loads(ready.text)["context"] == ["one | two"]
    assert ready.origin.changes == ("documents -> context", "text context")


@pytest.mark.parametrize(
    ("member", "field"),
    [
        ({"context": {"a": 1}}, "/context"),
        ({"contexts": 7}, "/contexts"),
        ({"metadata": []}, "/metadata"),
        ({"metadata": "text", "x": 1}, "/metadata"),
        ({"trajectory": []}, "/trajectory"),
        ({"trajectory": {}}, "/trajectory/steps"),
        ({"trajectory": {"steps": {}}}, "/trajectory/steps"),
        ({"trajectory": {"steps": [1]}}, "/trajectory/steps/0"),
        ({"trajectory": {"steps": [{}, {"name": 1}]}}, "/trajectory/steps/1/name"),
        ({"trajectory": {"steps": [{"attributes": []}]}}, "/trajectory/steps/0/attributes"),
        ({"trajectory": {"steps": [], "trace_id": 1}}, "/trajectory/trace_id"),
        ({"usage": 3}, "/usage"),
        ({"usage": {"input_tokens": -1}}, "/usage/input_tokens"),
        ({"usage": {"output_tokens": 1.5}}, "/usage/output_tokens"),
        ({"usage": {"cost_usd": "0.1"}}, "/usage/cost_usd"),
        ({"usage": {"latency_ms": True}}, "/usage/latency_ms"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_at_its_place(member: dict[str, Any], field: str) -> None:
    assert problems({"id": "a", "input": 1} | member) == [(field, "invalid_field")]


def test_a_full_trajectory_and_usage_are_taken() -> None:
    row = {
        "id": "a",
        "input": 1,
        "trajectory": {
            "trace_id": "t",
            "session_id": None,
            "steps": [{"type": "tool", "name": "n", "input": {}, "error": None, "attributes": {}, "more": 1}],
        },
        "usage": {"input_tokens": 1, "output_tokens": 0, "cost_usd": 0.25, "latency_ms": 12, "cached": 3},
    }
    assert record(row) == row


@pytest.mark.parametrize(("given", "stored"), [(7, "7"), (-1, "-1"), (2**64 - 1, "18446744073709551615"), ("x", "x")])
def test_an_id_is_a_text_or_an_integer(given: Any, stored: str) -> None:
    assert assemble({"id": given, "input": 1}).record_id == stored


@pytest.mark.parametrize("given", [1.5, True, {}, [], "x" * 257])
def test_an_id_of_another_kind_or_size_is_refused(given: Any) -> None:
    assert problems({"id": given, "input": 1}) == [("/id", "invalid_id")]


def test_an_id_of_256_characters_is_taken() -> None:
    assert assemble({"id": "é" * 256, "input": 1}).record_id == "é" * 256


@pytest.mark.parametrize("row", [{"input": 1}, {"id": None, "input": 1}, {"id": "", "input": 1}])
def test_a_missing_null_or_empty_id_is_left_out(row: dict[str, Any]) -> None:
    ready = assemble(row)
    assert (ready.record_id, ready.text) == (None, b'{"input":1}')


def test_the_place_of_a_derived_id_is_after_the_context() -> None:
    ready = assemble({"context": ["a", {"b": 1.0}], "input": 1})
    assert ready.text[: ready.id_offset] == b'{"context":["a",{"b":1.0}],'


def test_everything_that_is_wrong_with_a_row_is_said_at_once() -> None:
    row = {"id": 1.5, "context": 1, "metadata": 2, "reference": 3}
    assert problems(row) == [
        ("/input", "missing_input"),
        ("/context", "invalid_field"),
        ("/metadata", "invalid_field"),
        ("/id", "invalid_id"),
    ]


class TestMapping:
    def test_a_column_name_and_a_pointer_to_it_are_the_same(self) -> None:
        row = {"id": "a", "q": "x", "rest": 1}
        expected = {"id": "a", "input": "x", "metadata": {"rest": 1}}
        assert record(row, {"input": "q"}) == record(row, {"input": "/q"}) == expected

    def test_it_goes_before_the_own_name_and_the_aliases(self) -> None:
        row = {"id": "a", "input": 1, "question": 2, "q": 3}
        assert record(row, {"input": "q"}) == {"id": "a", "input": 3, "metadata": {"input": 1, "question": 2}}

    def test_a_place_inside_a_member_is_copied_and_the_member_stays(self) -> None:
        row = {"id": "a", "data": {"turns": ["x", "y"]}}
        assert record(row, {"input": "/data/turns/1"}) == {
            "id": "a",
            "input": "y",
            "metadata": {"data": {"turns": ["x", "y"]}},
        }

    def test_two_names_may_be_swapped(self) -> None:
        row = {"id": "a", "input": 1, "output": 2}
        assert record(row, {"input": "output", "output": "input"}) == {"id": "a", "input": 2, "output": 1}

    def test_two_fields_may_come_from_one_place(self) -> None:
        assert record({"id": "a", "x": 1}, {"input": "x", "reference": "x"}) == {"id": "a", "input": 1, "reference": 1}

    def test_a_name_that_is_mapped_is_no_alias_any_more(self) -> None:
        assert record({"id": "a", "answer": 1}, {"input": "answer"}) == {"id": "a", "input": 1}

    def test_a_mapped_id_and_metadata(self) -> None:
        row = {"key": 7, "input": 1, "about": {"x": 1}, "y": 2}
        mapping = {"id": "key", "metadata": "about"}
        ready = assemble(row, mapping)
        assert (ready.record_id, ready.origin.id_pointer) == ("7", "/key")
        assert json.loads(ready.text)["metadata"] == {"x": 1, "y": 2}

    def test_errors_point_to_the_mapped_place(self) -> None:
        assert problems({"id": "a", "input": 1}, {"input": "/no/where"}) == [("/no/where", "missing_input")]
        assert problems({"k": [], "input": 1}, {"id": "k"}) == [("/k", "invalid_id")]
        assert problems({"input": 1, "c": {"d": 1}}, {"context": "/c/d"}) == [("/c/d", "invalid_field")]

    def test_fields_that_are_found_in_no_row_are_known(self) -> None:
        assembly = RowAssembly({"input": "q", "reference": "/a/b", "output": "o", "context": "c"})
        assembly.assemble(1, {"id": "1", "q": 1, "o": None})
        assembly.assemble(2, {"id": "2", "q": 1, "a": {"b": 2}})
        assert assembly.unmatched_mapping == ["context", "output"]

    @pytest.mark.parametrize(
        ("mapping", "word"),
        [
            ({"question": "q"}, "question"),
            ({"input": ""}, "input"),
            ({"input": "/a~2"}, "~"),
            ({"": "x"}, "fields are"),
        ],
    )
    def test_a_mapping_that_makes_no_sense_is_refused(self, mapping: dict[str, str], word: str) -> None:
        with pytest.raises(MappingInvalidError, match=word):
            RowFields(mapping)


def test_a_file_with_ever_new_names_does_not_fill_the_memory() -> None:
    fields = RowFields()
    for number in range(3000):
        fields.plan({f"name {number}": 1})
    assert len(fields._plans) <= 1026
