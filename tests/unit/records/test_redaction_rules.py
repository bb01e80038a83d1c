from collections import Counter
from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from records.evaluators import catalogue
from records.record import Record
from records.redaction import RedactionError, RedactionRules, Redactor

PASSWORD = "correct horse battery staple"


def redact_row(row: dict[str, Any], **rules: Any) -> tuple[dict[str, Any], Counter[str]]:
    counts: Counter[str] = Counter()
    return Redactor(RedactionRules.model_validate(rules)).redact_row(row, counts), counts


def refuse(**rules: Any) -> str:
    with pytest.raises(ValidationError) as refusal:
        RedactionRules.model_validate(rules)
    return str(refusal.value)


def test_every_string_is_looked_at_wherever_it_stands() -> None:
    mail = "ann@example.com"
    row = {
        "id": mail,
        "input": [{"role": "user", "content": mail}],
        "output": {mail: [mail, {"deep": mail}]},
        "context": [mail],
        "trajectory": {"steps": [{"type": "tool", "name": "send", "args": {"to": mail, "n": 1}}]},
        "metadata": {"tags": [mail], "user_id": mail, "attributes": {mail: 1}},
        "usage": {"latency_ms": 5},
    }
    redacted, counts = redact_row(row)
    assert mail not in orjson.dumps(redacted).decode()
    assert counts == {"email": 10}
    assert redacted["usage"] == {"latency_ms": 5}
    assert redacted["trajectory"]["steps"][0]["args"]["n"] == 1


@pytest.mark.parametrize(
    "name",
    ["password", "Password", "PASSWORD", "api_key", "API-Key", "apiKey", "x-api-key", "Authorization",
     "http.request.header.authorization", "Client Secret"],
)  # fmt: skip
@pytest.mark.parametrize("value", [PASSWORD, 12345, True, ["a", "b"], {"a": {"b": PASSWORD}}])
def test_value_of_a_masked_name_goes_whole(name: str, value: Any) -> None:
    redacted, counts = redact_row({"metadata": {name: value, "kept": "text"}})
    assert redacted == {"metadata": {name: "[redacted:key]", "kept": "text"}}
    assert counts == {"key": 1}


def test_null_under_a_masked_name_hides_nothing() -> None:
    assert redact_row({"password": None}) == ({"password": None}, {})


def test_names_of_tokens_that_are_counted_are_no_masked_names() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "max_tokens": 3, "token_count": 4}
    assert redact_row({"usage": dict(usage)}) == ({"usage": usage}, {})


def test_masked_name_is_found_in_text_that_is_json() -> None:
    arguments = orjson.dumps({"password": PASSWORD, "note": orjson.dumps({"api_key": PASSWORD}).decode()}).decode()
    redacted, counts = redact_row({"args": arguments})
    assert PASSWORD not in redacted["args"]
    assert orjson.loads(redacted["args"])["password"] == "[redacted:key]"
    assert counts == {"key": 2}


@pytest.mark.parametrize("text", ['{"a": 1.0,  "b": [1, 2]}', "[1,2", "{}", "[x]", "{" * 500, "[" * 900 + "]" * 900])
def test_json_text_without_anything_to_hide_stays_byte_for_byte(text: str) -> None:
    assert redact_row({"a": text}) == ({"a": text}, {})


def test_two_names_that_are_masked_alike_both_stay() -> None:
    redacted, _ = redact_row({"a@b.example": 1, "c@d.example": 2})
    assert redacted == {"[redacted:email]": 1, "[redacted:email] (2)": 2}


def test_custom_pattern_has_a_kind_of_its_own_and_is_not_applied_to_what_was_masked() -> None:
    custom = [{"name": "ticket", "pattern": r"[A-Z]{2}-\d+"}, {"name": "word", "pattern": "redacted"}]
    redacted, counts = redact_row({"a": "AB-12 by ann@example.com, redacted"}, custom=custom)
    assert redacted["a"] == "[redacted:ticket] by [redacted:email], [redacted:word]"
    assert counts == {"ticket": 1, "email": 1, "word": 1}


def test_places_where_patterns_meet_are_masked_once_and_whole() -> None:
    custom = [{"name": "to", "pattern": "to ann@exam"}]
    redacted, counts = redact_row({"a": "mail to ann@example.com!"}, custom=custom)
    assert redacted["a"] == "mail [redacted:email]!"
    assert counts == {"email": 1}


def test_fields_are_dropped_by_path() -> None:
    row = {
        "input": {"a": 1},
        "context": ["x", "y"],
        "trajectory": {"steps": [{"args": 1, "name": "n"}, {"args": 2}]},
        "metadata": {"user.email": "u", "user": {"id": 7}, "*": "star", "o'k": 1},
    }
    paths = [
        "$.trajectory.steps[*].args",
        "metadata['user.email']",
        "$.metadata.user.id",
        "$.context[0]",
        "$.no.such",
        "$.context[9]",
        '$.metadata["o\'k"]',
    ]
    redacted, counts = redact_row(row, drop_fields=paths)
    assert redacted == {
        "input": {"a": 1},
        "context": [None, "y"],
        "trajectory": {"steps": [{"name": "n"}, {}]},
        "metadata": {"user": {}, "*": "star"},
    }
    assert counts == {"field": 6}
    redacted, _ = redact_row({"metadata": {"a": {"x": 1}, "b": {"x": 2, "y": 3}}}, drop_fields=["$.metadata.*.x"])
    assert redacted == {"metadata": {"a": {}, "b": {"y": 3}}}


@pytest.mark.parametrize(
    "path", ["", "$", "$.id", "$..a", "$.a[?(@.b)]", "$.a[-1]", "a b", "$.*", "$.a.", "$[", "x" * 600]
)
def test_path_that_is_none_is_refused(path: str) -> None:
    assert "path" in refuse(drop_fields=[path]) or "id" in refuse(drop_fields=[path])


@pytest.mark.parametrize(
    ("custom", "word"),
    [
        ([{"name": "a", "pattern": "(?=x)"}], "look-around"),
        ([{"name": "a", "pattern": "x*"}], "empty text"),
        ([{"name": "email", "pattern": "x"}], "taken"),
        ([{"name": "key", "pattern": "x"}], "taken"),
        ([{"name": "a", "pattern": "x"}, {"name": "a", "pattern": "y"}], "taken"),
        ([{"name": "A b", "pattern": "x"}], "pattern"),
    ],
)
def test_custom_pattern_that_cannot_be_is_refused(custom: list[dict[str, str]], word: str) -> None:
    assert word in refuse(custom=custom)


def test_unknown_pattern_and_field_are_refused() -> None:
    assert "patterns" in refuse(patterns=["ssn"])
    assert "Extra inputs" in refuse(mask_key=["a"])


def test_evil_custom_pattern_takes_linear_time() -> None:
    redacted, _ = redact_row({"text": "a" * 100_000 + "!"}, custom=[{"name": "evil", "pattern": "(a+)+$"}])
    assert redacted["text"].endswith("!")


def test_value_that_is_nested_too_deep_is_an_error_and_not_a_crash() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(RedactionError, match="deeper"):
        redact_row({"a": deep})


def test_rules_survive_being_stored() -> None:
    rules = RedactionRules(drop_fields=["$.metadata"], patterns=["email"])
    assert RedactionRules.model_validate(rules.model_dump(mode="json")) == rules


@pytest.mark.parametrize(
    ("output", "params", "passed"),
    [
        ("all is well", {}, True),
        ("write to ann@example.com", {}, False),
        ("write to ann@example.com", {"patterns": ["phone"]}, True),
        ({"answer": [{"ann@example.com": 1}]}, {}, False),
        ('{"answer": "sk-ant-api03-abcDEF1234567890"}', {}, False),
        ({"password": "a word"}, {}, True),
        ("[redacted:email] was here", {}, True),
        ("order AB-1", {"patterns": [], "custom": [{"name": "order", "pattern": r"AB-\d"}]}, False),
        (12, {}, True),
    ],
)
def test_pii_leak_passes_what_holds_nothing(output: Any, params: dict[str, Any], passed: bool) -> None:
    scorer = catalogue.build("pii_leak", params)
    score = scorer(Record(id="r", output=output))
    assert (score.status, score.passed, score.score) == ("scored", passed, float(passed))


def test_pii_leak_skips_a_record_without_an_output_and_refuses_to_look_for_nothing() -> None:
    assert catalogue.build("pii_leak")(Record(id="r")).status == "skipped"
    with pytest.raises(catalogue.InvalidParamsError, match="nothing to look for"):
        catalogue.validate("pii_leak", {"patterns": []})
    with pytest.raises(catalogue.InvalidParamsError, match="taken"):
        catalogue.validate("pii_leak", {"custom": [{"name": "email", "pattern": "x"}]})
