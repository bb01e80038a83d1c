from typing import Any

import pytest
from records.evaluators import catalogue

ARN = "arn:aws:lambda:eu-central-1:123456789012:function:scorer"
JUDGE: dict[str, Any] = {"provider": "bedrock", "model": "m", "rubric": "5 is best"}
OPENAI = JUDGE | {"provider": "openai", "url": "https://api.example.com/v1/chat/completions"}
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("llm_judge", JUDGE),
    ("llm_judge", OPENAI | {"secret": "evalward/demo/key", "lowest": 0, "highest": 1, "show": ["output"]}),
    ("lambda", {"function": ARN}),
    ("lambda", {"function": f"{ARN}:live", "batch_size": 100, "settings": {"a": [1]}, "min": 0, "max": 1}),
]


@pytest.mark.parametrize(("name", "params"), GOOD)
def test_defaults_are_applied_and_stay_as_they_are(name: str, params: dict[str, Any]) -> None:
    validated = catalogue.validate(name, params)
    assert catalogue.validate(name, validated) == validated
    (schema,) = [entry["params_schema"] for entry in catalogue.list_evaluators() if entry["name"] == name]
    assert set(validated) == set(schema["properties"])


@pytest.mark.parametrize(
    ("name", "params", "pointer"),
    [
        ("llm_judge", {}, "/p/provider"),
        ("llm_judge", JUDGE | {"provider": "acme"}, "/p/provider"),
        ("llm_judge", JUDGE | {"rubric": ""}, "/p/rubric"),
        ("llm_judge", JUDGE | {"highest": "5"}, "/p/highest"),
        ("llm_judge", JUDGE | {"lowest": 5, "highest": 5}, "/p"),
        ("llm_judge", JUDGE | {"url": "https://api.example.com/"}, "/p"),
        ("llm_judge", JUDGE | {"secret": "evalward/demo/key"}, "/p"),
        ("llm_judge", JUDGE | {"provider": "openai"}, "/p"),
        ("llm_judge", JUDGE | {"show": ["input"]}, "/p"),
        ("llm_judge", JUDGE | {"api_key": "sk-1"}, "/p/api_key"),
        ("llm_judge", JUDGE | {"timeout_seconds": 61}, "/p/timeout_seconds"),
        ("lambda", {}, "/p/function"),
        ("lambda", {"function": "scorer"}, "/p/function"),
        ("lambda", {"function": "arn:aws:lambda:*:123456789012:function:scorer"}, "/p/function"),
        ("lambda", {"function": ARN, "batch_size": 0}, "/p/batch_size"),
        ("lambda", {"function": ARN, "min": 2, "max": 1}, "/p"),
    ],
)
def test_parameters_that_are_not_right_are_refused_with_their_place(
    name: str, params: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate(name, params, at="/p")
    assert pointer in {problem.pointer for problem in refusal.value.problems}


@pytest.mark.parametrize(("name", "params"), GOOD)
def test_the_pure_layer_makes_no_scorer_of_them(name: str, params: dict[str, Any]) -> None:
    assert catalogue.get_evaluator(name).calls_out
    with pytest.raises(TypeError, match="no pure judge"):
        catalogue.build(name, params)


def test_all_others_are_pure() -> None:
    names = {entry["name"] for entry in catalogue.list_evaluators()}
    assert {name for name in names if catalogue.get_evaluator(name).calls_out} == {"llm_judge", "lambda"}
