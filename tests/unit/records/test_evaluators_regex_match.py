import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records.evaluators import catalogue
from records.evaluators.regex_match import compile_pattern
from records.record import Record


def judge(output: Any, pattern: str, **params: Any) -> tuple[Any, ...]:
    score = catalogue.build("regex_match", {"pattern": pattern, **params})(Record(id="r", output=output))
    return score.status, score.score, score.passed


PASS = ("scored", 1.0, True)
FAIL = ("scored", 0.0, False)


@pytest.mark.parametrize(
    ("output", "pattern", "params", "expected"),
    [
        ("order 66", r"\d+", {}, PASS),
        ("order", r"\d+", {}, FAIL),
        ("order 66", r"\d+", {"full": True}, FAIL),
        ("66", r"\d+", {"full": True}, PASS),
        ("a|b", "a|b", {"full": True}, FAIL),
        ("PARIS", "(?i)paris", {}, PASS),
        ("a\nb", "a.b", {}, FAIL),
        ("a\nb", "(?s)a.b", {}, PASS),
        ("a\nb", "(?m)^b$", {}, PASS),
        ("Zürich", r"^\p{Lu}\p{L}+$", {}, PASS),
        ("😀", "^.$", {}, PASS),
        ("", "^$", {}, PASS),
        ({"b": 1.0, "a": "é"}, r'^\{"a":"é","b":1\}$', {}, PASS),
        ([1, 2], r"^\[1,2\]$", {}, PASS),
        (None, "a", {}, ("skipped", None, None)),
        ("I do not know", "not know", {"absent": True}, FAIL),
        ("Paris", "not know", {"absent": True}, PASS),
        ("Paris, I think", "Paris", {"absent": True, "full": True}, PASS),
        (None, "a", {"absent": True}, ("skipped", None, None)),
    ],
)
def test_regex_match(output: Any, pattern: str, params: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert judge(output, pattern, **params) == expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a", "missing )"),
        ("[", "missing ]"),
        ("(?<=a)b", "no look-around"),
        (r"(a)\1", "no back-references"),
        (r"\p{L}{50}", "are allowed; use smaller repetition counts"),
        (r"\p{L}{900}", "smaller repetition counts"),
        ("(a{1000}){1000}", "smaller repetition counts"),
        ("", "at least 1 character"),
        ("a" * 10_001, "at most 10000 characters"),
        ("a\0b", "NUL"),
        ("\ud835", "surrogate"),
    ],
)
def test_a_pattern_that_cannot_be_run_is_refused_with_what_to_do(pattern: str, words: str) -> None:
    with pytest.raises(catalogue.InvalidParamsError) as refusal:
        catalogue.validate("regex_match", {"pattern": pattern}, at="/evaluators/0/params")
    assert [problem.pointer for problem in refusal.value.problems] == ["/evaluators/0/params/pattern"]
    assert words in refusal.value.problems[0].message


def test_a_pattern_of_half_a_surrogate_pair_is_refused_by_the_compiler_too() -> None:
    with pytest.raises(ValueError, match="valid Unicode"):
        compile_pattern("\ud835")


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(a|aa)+$", "(.*a){20}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_a_pattern_that_makes_a_backtracking_engine_hang_ends(pattern: str) -> None:
    assert judge("a" * 200_000 + "!", pattern) == FAIL


def test_a_long_output_for_a_large_pattern_is_an_error_of_that_row_only() -> None:
    scorer = catalogue.build("regex_match", {"pattern": r"(?:[ab]{0,30}){33}z"})
    score = scorer(Record(id="r", output="ab" * 1_000_000))
    assert score.status == "error"
    assert score.message is not None
    assert "characters" in score.message
    assert scorer(Record(id="r", output="abz")).score == 1.0


@given(st.text("ab01 \n", max_size=20), st.sampled_from(["a+b", "^a", "b$", r"\bab\b", "[^0-9]{3}", "a.b", "(?i)A?0"]))
def test_simple_patterns_mean_what_python_means_by_them(output: str, pattern: str) -> None:
    # "$" is the very end in RE2; Python also lets it match before a final line feed.
    expected = re.search(pattern.replace("$", r"\Z"), output) is not None
    assert judge(output, pattern) == (PASS if expected else FAIL)
