from __future__ import annotations

import pytest
from coordination.failures import clean_error, normalize_error

RUN = "0c9f7a52-9a0e-4f43-8f0e-2b8f0f6f6d11"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Shard 3 was tried 5 times and never ended.", "Shard 17 was tried 12 times and never ended."),
        (f"no run {RUN} there", f"no run {RUN.replace('0', 'a')} there"),
        ("waited until 2026-03-01T10:00:00Z", "waited until 2027-04-02 11:30:00.125+02:00"),
        ("digest 5f3759df1122aa", "digest 0badc0ffee0ddf00d"),
        ("at 0x7f21ab", "at 0x1"),
        ("took 1.5 s of 2,000 ms", "took 12.75 s of 1 ms"),
        ('the field "name" is odd', 'the field "title" is odd'),
        ("two\nlines", "two   lines "),
    ],
)
def test_errors_of_one_kind_are_the_same_when_normalized(one: str, other: str) -> None:
    assert normalize_error(one) == normalize_error(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the bucket refused", "the bucket did not answer"),
        ("the endpoint answered with status A", "the endpoint answered with status B"),
        ("the run's records are gone", "the run's results are gone"),
    ],
)
def test_errors_of_different_kinds_stay_apart(one: str, other: str) -> None:
    assert normalize_error(one) != normalize_error(other)


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-" + "a1B2" * 23 + "AA",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "a1B2c3D4e5" * 3 + "a1B2c3",
        "Bearer abcdef0123456789abcdef",
        "ann@example.com",
    ],
)
def test_secret_in_an_error_is_in_neither_text(secret: str) -> None:
    error = f"the call with {secret} was refused"
    assert secret not in clean_error(error)
    assert secret not in normalize_error(error)
    assert clean_error(error).startswith("the call with ")


@pytest.mark.parametrize("quotation", ['"my secret plan"', "'my secret plan'", "“my secret plan”"])
def test_quoted_text_is_in_neither_text(quotation: str) -> None:
    assert clean_error(f"the answer {quotation} is none") == "the answer <text> is none"


def test_texts_are_short_and_can_be_stored() -> None:
    error = "a\0b \ud835 " + "long " * 1000
    for text in (clean_error(error), normalize_error(error)):
        assert len(text) <= 500
        assert "\0" not in text
        text.encode()


def test_normalizing_again_changes_nothing() -> None:
    once = normalize_error(f"Shard 3 of {RUN} at 2026-03-01T10:00:00Z: deadbeef01, 'x', 1.5")
    assert normalize_error(once) == once == "Shard <n> of <id> at <time>: <hex>, <text>, <n>"
