"""JSON Schema: whether the output satisfies a schema.

A text is parsed as JSON first; one that does not parse fails. Validated by jsonschema-rs with the draft that the schema
names in ``$schema`` (4, 6, 7, 2019-09, 2020-12; by default 2020-12, https://json-schema.org/draft/2020-12). ``format``
asserts nothing, as is the default of 2020-12. References stay inside the schema: nothing is fetched. Patterns are run
by an engine that is linear in the text, so they have no look-around and no back-references.
"""

from typing import Any, cast

from pydantic import Field, field_validator

from records.evaluators.contract import (
    FAILED,
    NO_OUTPUT,
    Evaluator,
    Judge,
    Score,
    UnscorableError,
    pass_or_fail,
)
from records.evaluators.json_output import JsonOutputParams, NotJsonError
from records.evaluators.json_values import MAX_DEPTH, escape_pointer, find_flaw_and_pointer, is_nested_deeper
from records.record import Record


class JsonSchemaParams(JsonOutputParams):
    """Parameters of json_schema."""

    schema_: dict[str, Any] | bool = Field(
        alias="schema", description="The JSON Schema that the output must satisfy; it may refer only to itself."
    )

    @field_validator("schema_", mode="before")
    @classmethod
    def is_schema(cls, schema: Any) -> Any:
        """Refuse what no draft knows as a schema."""
        if not isinstance(schema, dict | bool):
            message = "must be a JSON Schema: an object, true or false"
            raise ValueError(message)
        return cast("dict[str, Any] | bool", schema)

    @field_validator("schema_")
    @classmethod
    def compiles(cls, schema: dict[str, Any] | bool) -> dict[str, Any] | bool:
        """Refuse what is not a JSON Schema, and what would have to be fetched."""
        compile_schema(schema)
        return schema


def compile_schema(schema: dict[str, Any] | bool) -> Any:
    """Compile a schema into a validator.

    Raises
    ------
    ValueError
        The message says what is wrong with the schema and what to change.
    """
    flaw = find_flaw_and_pointer(schema)
    if flaw is not None:
        message = f"not a usable JSON Schema (at '{flaw[1]}'): {flaw[0]}"
        raise ValueError(message)
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema, offline=True, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions()
        )
    except jsonschema_rs.ValidationError as error:
        place = "".join(f"/{escape_pointer(str(step))}" for step in error.instance_path)
        advice = ""
        if "Retrieval is disabled" in error.message:
            advice = "; references to other documents are not followed: put their schemas under $defs"
        elif '"regex"' in error.message:
            advice = "; patterns are run in linear time: no look-around, no back-references"
        message = f"not a usable JSON Schema (at '{place}'): {error.message[:500]}{advice}"
        raise ValueError(message) from None


def build_judge(params: JsonSchemaParams) -> Judge:
    """Build the judge; the schema is compiled once."""
    is_valid = compile_schema(params.schema_).is_valid

    def judge(record: Record) -> Score:
        if record.output is None:
            return NO_OUTPUT
        try:
            value = params.read_json(record.output)
        except NotJsonError:
            return FAILED
        # The library does not survive every depth, and the guard in front of the judge saw the text, not its value.
        if isinstance(record.output, str) and is_nested_deeper(value, MAX_DEPTH):
            message = f"the JSON in the output cannot be validated: it is nested deeper than {MAX_DEPTH} levels"
            raise UnscorableError(message)
        return pass_or_fail(is_valid(value))

    return judge


EVALUATOR = Evaluator(
    name="json_schema",
    version=1,
    kind="pass_fail",
    description="Whether the output satisfies a JSON Schema.",
    score_meaning="1 when the output (parsed as JSON if it is a text) satisfies the schema, else 0; a text that is not "
    "JSON is 0. Skipped without an output.",
    params=JsonSchemaParams,
    build=build_judge,
    minimum=0.0,
    maximum=1.0,
)
