import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from records.evaluators import catalogue
from records.evaluators.json_schema import compile_schema
from records.record import Record

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


def judge(output: Any, schema: Any, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("json_schema", {"schema": schema, **params})(Record(id="r", output=output))
    return score.status, score.score, score.passed


PASS = ("scored", 1.0, True)
FAIL = ("scored", 0.0, False)


@pytest.mark.parametrize(
    ("output", "schema", "params", "expected"),
    [
        ({"name": "Ada", "age": 36}, PERSON, {}, PASS),
        ({"name": "Ada", "age": 36.0}, PERSON, {}, PASS),
        ({"name": "ada"}, PERSON, {}, FAIL),
        ({"age": 36}, PERSON, {}, FAIL),
        ({"name": "Élodie"}, {"properties": {"name": {"maxLength": 6}}}, {}, PASS),
        ('{"name": "Ada"}', PERSON, {}, PASS),
        ('{"name": "Ada", "x": 1}', PERSON, {}, FAIL),
        ("not JSON", PERSON, {}, FAIL),
        ("", PERSON, {}, FAIL),
        ('```json\n{"name": "Ada"}\n```', PERSON, {}, FAIL),
        ('```json\n{"name": "Ada"}\n```', PERSON, {"allow_fence": True}, PASS),
        ('"text"', {"type": "string"}, {}, PASS),
        ("text", {"type": "string"}, {}, FAIL),
        (5, True, {}, PASS),
        (5, False, {}, FAIL),
        ([1, [2, [3]]], {"$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}, {}, PASS),
        ("2026-13-99", {"format": "date"}, {}, FAIL),
        ('"2026-13-99"', {"format": "date"}, {}, PASS),
        (5, {"$schema": "http://json-schema.org/draft-04/schema#", "maximum": 5, "exclusiveMaximum": True}, {}, FAIL),
        (None, PERSON, {}, ("skipped", None, None)),
    ],
)
def test_json_schema(output: Any, schema: Any, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert judge(output, schema, **params) == expected


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "nope"}, "/type"),
        ({"properties": {"a/b": {"minimum": "x"}}}, "/properties/a~1b/minimum"),
        ({"pattern": "(?<=a)b"}, "no look-around"),
        ({"pattern": "("}, "regex"),
        ({"$ref": "http://schemas.invalid/a"}, "put their schemas under $defs"),
        ({"$ref": "file:///etc/passwd"}, "put their schemas under $defs"),
        ({"$ref": "#/$defs/missing"}, "does not exist"),
        ({"$schema": "http://schemas.invalid/draft"}, "not a usable JSON Schema"),
        (5, "an object, true or false"),
        (None, "an object, true or false"),
        ({"const": "\0"}, "NUL"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_what_to_do(schema: Any, words: str) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate("json_schema", {"schema": schema}, at="/params")
    (problem,) = refusal.value.problems
    assert problem.pointer.startswith("/params/schema")
    assert words in problem.message


def test_the_schema_is_required() -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate("json_schema", {})
    assert [problem.pointer for problem in refusal.value.problems] == ["/schema"]


def test_a_schema_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(70):
        schema = {"not": schema}
    with pytest.raises(catalogue.InvalidParamsError, match="nested deeper"):
        catalogue.validate("json_schema", {"schema": schema})


def test_a_schema_that_the_library_would_not_survive_is_refused_before_it() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"not": schema}
    with pytest.raises(ValueError, match="nested deeper"):
        compile_schema(schema)


@pytest.mark.parametrize(("levels", "status"), [(64, "scored"), (65, "error")])
@pytest.mark.parametrize(("opening", "closing", "inside"), [("[", "]", ""), ('{"a":', "}", "1")])
def test_json_text_is_validated_up_to_64_levels(
    levels: int, status: str, opening: str, closing: str, inside: str
) -> None:
    scorer = catalogue.build("json_schema", {"schema": {"items": {"$ref": "#"}}})
    assert scorer(Record(id="r", output=opening * levels + inside + closing * levels)).status == status


def test_json_text_nested_too_deep_for_the_validator_is_an_error_of_that_row() -> None:
    scorer = catalogue.build("json_schema", {"schema": {"items": {"$ref": "#"}}})
    score = scorer(Record(id="r", output="[" * 500 + "]" * 500))
    assert score.status == "error"
    assert score.message is not None
    assert "nested" in score.message
    assert scorer(Record(id="r", output="[[]]")).score == 1.0


def test_a_pattern_that_makes_a_backtracking_engine_hang_ends() -> None:
    assert judge(json.dumps("a" * 200_000 + "!"), {"pattern": "^(a+)+$"}) == FAIL


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "name": st.text("ABab", max_size=3) | st.none(),
            "age": st.integers(-2, 3) | st.floats(0, 2),
            "x": st.booleans(),
        },
    )
)
def test_it_agrees_with_another_implementation(value: Any) -> None:
    expected = PASS if Draft202012Validator(PERSON).is_valid(value) else FAIL
    assert judge(value, PERSON) == expected
    assert judge(json.dumps(value), PERSON) == expected
