import hashlib

import pytest
from coordination.errors import InvalidIdempotencyKeyError
from coordination.idempotency.key import digest_key, parse_idempotency_key


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("abc", "abc"),
        ('"abc"', "abc"),
        (" abc ", "abc"),
        ('\t"abc" ', "abc"),
        ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
        ("!~", "!~"),
        ('"a,b"', "a,b"),
        ('"a\\"b"', 'a"b'),
        ('"a\\\\b"', "a\\b"),
        ("a\\b", "a\\b"),
        ('"abc";p=1', "abc"),
        ('"abc"; p=1; q', "abc"),
        ("abc;p=1", "abc;p=1"),
        ("x" * 128, "x" * 128),
        ('"' + "x" * 128 + '"', "x" * 128),
        ('"' + '\\"' * 128 + '"', '"' * 128),
    ],
)
def test_quoted_and_bare_values_are_unwrapped(header: str, key: str) -> None:
    assert parse_idempotency_key(header) == key


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        '""',
        '"',
        '"abc',
        'abc"',
        'a"b',
        '"a"b"',
        '"abc" x',
        '"abc";',
        '"abc"; =1',
        "a b",
        '"a b"',
        "a\tb",
        "a\nb",
        "a\0b",
        "a\x7fb",
        "ä",
        '"ä"',
        "\u00a0",
        "a,b",
        '"a","b"',
        '"a",b',
        "abc, abc",
        '"a\\b"',
        '"a\\',
        "x" * 129,
        '"' + "x" * 129 + '"',
    ],
)
def test_value_that_cannot_be_a_key_is_refused(header: str) -> None:
    with pytest.raises(InvalidIdempotencyKeyError) as caught:
        parse_idempotency_key(header)
    assert (caught.value.status, caught.value.code) == (400, "invalid_idempotency_key")


def test_refusal_does_not_repeat_the_key() -> None:
    with pytest.raises(InvalidIdempotencyKeyError) as caught:
        parse_idempotency_key("secret, secret")
    assert "secret" not in caught.value.detail


def test_digest_is_sha256_of_the_unwrapped_key() -> None:
    assert digest_key(parse_idempotency_key('"abc"')) == hashlib.sha256(b"abc").digest()
