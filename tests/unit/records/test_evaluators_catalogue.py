import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import records.evaluators
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.evaluators.contract import (
    Evaluator,
    EvaluatorParams,
    Judge,
    Score,
    Scorer,
    UnscorableError,
    scored,
)
from records.evaluators.pointers import ParameterProblem
from records.record import Record

NAMES = [
    "bleu",
    "chrf",
    "contains",
    "cost",
    "exact_match",
    "fuzzy_match",
    "json_schema",
    "json_valid",
    "latency",
    "length",
    "numeric_match",
    "regex_match",
    "rouge_l",
    "token_f1",
    "tokens",
    "tool_call_accuracy",
    "trajectory_match",
]
REQUIRED: dict[str, dict[str, Any]] = {"regex_match": {"pattern": "a"}, "json_schema": {"schema": {}}}
RECORD = Record(
    id="r",
    output="12",
    reference="12",
    usage={"input_tokens": 1, "output_tokens": 2, "cost_usd": 0.1, "latency_ms": 5},
)
CALLS = Record(id="r", output="12", reference=["open"], trajectory={"steps": [{"type": "tool", "name": "open"}]})
RECORDS = {"tool_call_accuracy": CALLS, "trajectory_match": CALLS}


def scorer_of(judge: Judge) -> Scorer:
    evaluator = Evaluator(
        name="probe",
        version=1,
        kind="number",
        description="",
        score_meaning="",
        params=EvaluatorParams,
        build=lambda _params: judge,
    )
    return Scorer(evaluator, judge)


def test_the_catalogue_lists_every_evaluator_as_json() -> None:
    entries = catalogue.list_evaluators()
    assert set(NAMES) <= {entry["name"] for entry in entries}
    assert [entry["name"] for entry in entries] == sorted(entry["name"] for entry in entries)
    assert json.loads(json.dumps(entries)) == entries


@pytest.mark.parametrize("entry", catalogue.list_evaluators(), ids=lambda entry: entry["name"])
def test_an_entry_says_what_its_score_means_and_describes_every_parameter(entry: dict[str, Any]) -> None:
    assert list(entry) == [
        "name",
        "version",
        "kind",
        "description",
        "score_meaning",
        "minimum",
        "maximum",
        "better",
        "params_schema",
    ]
    assert entry["kind"] in {"pass_fail", "number"}
    assert entry["version"] >= 1
    assert entry["description"].endswith(".")
    assert "kipped" in entry["score_meaning"]
    schema = entry["params_schema"]
    jsonschema_rs.Draft202012Validator(schema)
    assert schema["additionalProperties"] is False
    assert all(field["description"] for field in schema["properties"].values())
    if entry["kind"] == "pass_fail":
        assert (entry["minimum"], entry["maximum"]) == (0.0, 1.0)


def test_an_evaluator_is_one_file_of_its_name() -> None:
    files = {path.stem for folder in records.evaluators.__path__ for path in Path(folder).glob("*.py")}
    assert {entry["name"] for entry in catalogue.list_evaluators()} <= files


@pytest.mark.parametrize("name", NAMES)
def test_defaults_are_applied_and_stay_as_they_are(name: str) -> None:
    validated = catalogue.validate(name, REQUIRED.get(name))
    assert catalogue.validate(name, json.loads(json.dumps(validated))) == validated
    schema = next(entry["params_schema"] for entry in catalogue.list_evaluators() if entry["name"] == name)
    assert set(validated) == set(schema["properties"])
    assert jsonschema_rs.is_valid(schema, validated)


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_parameter_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate(name, {**REQUIRED.get(name, {}), "a/b~": 1}, at="/evaluators/3/params")
    (problem,) = refusal.value.problems
    assert problem.pointer == "/evaluators/3/params/a~1b~0"
    assert "no such parameter" in problem.message
    assert "/evaluators/3/params/a~1b~0" in str(refusal.value)


@pytest.mark.parametrize("params", [[], "a", 5, [1]])
def test_parameters_that_are_no_object_are_refused(params: Any) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate("latency", params, at="/params")
    assert refusal.value.problems == (ParameterProblem("/params", "must be a JSON object"),)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("exactmatch", "exact_match"), ("token-f1", "token_f1"), ("Latency", "latency"), ("regex", "regex_match")],
)
def test_an_unknown_evaluator_is_refused_with_the_nearest_names(name: str, nearest: str) -> None:
    with pytest.raises(catalogue.UnknownEvaluatorError) as refusal:
        catalogue.validate(name, {})
    assert refusal.value.nearest[0] == nearest
    assert nearest in str(refusal.value)


def test_a_name_like_none_has_no_nearest() -> None:
    with pytest.raises(catalogue.UnknownEvaluatorError) as refusal:
        catalogue.build("qqqqqq")
    assert refusal.value.nearest == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_scorer_is_deterministic(name: str) -> None:
    record = RECORDS.get(name, RECORD)
    first = catalogue.build(name, REQUIRED.get(name))(record)
    assert first.status == "scored"
    assert catalogue.build(name, REQUIRED.get(name))(record) == first


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "output", ["a\0b", "\ud835", {"a": ["\udc00"]}, {"\ud835": 1}, ["x", {"a": "\0"}], float("nan"), [float("inf")]]
)
def test_an_output_that_cannot_be_kept_is_an_error_of_its_row(name: str, output: Any) -> None:
    score = catalogue.build(name, REQUIRED.get(name))(Record(id="r", output=output, reference="a", usage=RECORD.usage))
    assert (score.status, score.score, score.passed) == ("error", None, None)
    assert score.message is not None
    score.message.encode()
    assert "\0" not in score.message


@pytest.mark.parametrize("name", NAMES)
def test_an_output_nested_beyond_reason_is_an_error_of_its_row(name: str) -> None:
    output: Any = 1
    for _ in range(100_000):
        output = [output]
    score = catalogue.build(name, REQUIRED.get(name))(Record(id="r", output=output, reference="a"))
    assert score.status == "error"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


USAGES = st.none() | st.dictionaries(
    st.sampled_from(["input_tokens", "output_tokens", "cost_usd", "latency_ms"]), JSON_VALUES, max_size=4
)


@given(st.sampled_from(NAMES), JSON_VALUES, JSON_VALUES, USAGES)
def test_no_record_raises_and_every_score_is_in_range(name: str, output: Any, reference: Any, usage: Any) -> None:
    scorer = catalogue.build(name, REQUIRED.get(name))
    record = Record(id="r", output=output, reference=reference, usage=usage)
    score = scorer(record)
    assert scorer(record) == score
    if score.status == "scored":
        evaluator = scorer.evaluator
        assert score.score is not None
        assert score.message is None
        assert evaluator.minimum is None or score.score >= evaluator.minimum
        assert evaluator.maximum is None or score.score <= evaluator.maximum
        assert evaluator.kind == "number" or (score.score == 1.0) is score.passed
    else:
        assert (score.score, score.passed) == (None, None)
        assert score.message


def test_a_judge_that_raises_makes_an_error_that_quotes_nothing() -> None:
    def judge(record: Record) -> Score:
        raise RuntimeError(record.output)

    score = scorer_of(judge)(RECORD)
    assert (score.status, score.message) == ("error", "probe failed on this record (RuntimeError)")


def test_a_judge_may_say_why_a_record_cannot_be_scored() -> None:
    def judge(record: Record) -> Score:
        raise UnscorableError("the moon is too full")

    assert scorer_of(judge)(RECORD) == Score("error", message="the moon is too full")


def test_a_panic_of_an_extension_is_an_error_of_its_row() -> None:
    class PanicException(BaseException):
        pass

    def judge(record: Record) -> Score:
        raise PanicException

    assert scorer_of(judge)(RECORD).status == "error"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_stops_the_process_is_not_taken_for_a_failure_of_a_row(stop: type[BaseException]) -> None:
    def judge(record: Record) -> Score:
        raise stop

    with pytest.raises(stop):
        scorer_of(judge)(RECORD)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e151])
def test_a_score_that_no_mean_can_hold_is_an_error(number: float) -> None:
    assert scorer_of(lambda _record: scored(number))(RECORD).status == "error"


def test_zero_is_never_negative() -> None:
    assert str(scorer_of(lambda _record: scored(-0.0, at_least=0.0))(RECORD).score) == "0.0"


def test_checking_parameters_imports_no_scoring_library() -> None:
    code = (
        "import sys; from records.evaluators import catalogue;"
        "catalogue.list_evaluators(); catalogue.validate('fuzzy_match', {'threshold': 0.5});"
        "print(sorted({'rapidfuzz', 're2', 'jsonschema_rs', 'scipy', 'mpmath', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
