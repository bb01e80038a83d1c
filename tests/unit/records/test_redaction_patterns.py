from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records.redaction import RedactionRules, Redactor
from records.redaction.rules import PATTERN_NAMES, PatternName

JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc/+==\n-----END RSA PRIVATE KEY-----"

MASKED: dict[PatternName, list[str]] = {
    "private_key": [
        PEM,
        PEM.replace("\n", "\\n"),
        PEM.replace("RSA ", ""),
        PEM.replace("RSA", "OPENSSH"),
    ],
    "jwt": [JWT, f"{JWT.rpartition('.')[0]}."],
    "provider_key": [
        "sk-abcdefghijklmnopqrstuvwx",
        "sk-proj-Ab12_cd34-ef56gh78ij90",
        "sk-ant-api03-AbC-dEf_123456789012",
        "AIza" + "Sy1_-" * 7,
        "hf_" + "aB3" * 12,
        "ew_0123456789abcdef_" + "0f" * 32,
    ],
    "github_token": ["ghp_" + "aB3d" * 9, "ghs_" + "0" * 36, "github_pat_11ABCDEFG0_" + "a" * 30],
    "aws_key": ["AKIAIOSFODNN7EXAMPLE", "ASIAY34FZKBOKMUTVV7A"],
    "bearer_token": [],
    "iban": ["DE89370400440532013000", "DE89 3704 0044 0532 0130 00", "GB82-WEST-1234-5698-7654-32", "no9386011117947"],
    "payment_card": [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "340000000000009",
        "6011000000000004",
    ],
    "email": [
        "ann@example.com",
        "Ann.Lee+news@mail.example.co.uk",
        "ann%40example.com",
        "jürgen@münchen.example",
        "用户@例子.测试",
        "x@xn--bcher-kva.example",
    ],
    "phone": [
        "+49 30 1234567",
        "+1 (555) 234-5678",
        "+442079460958",
        "0049 30 1234567",
        "(555) 234-5678",
        "555-234-5678",
        "555.234.5678",
        "1-800-555-0199",
        "(030) 1234567",
        "030/1234567",
        "020 7946 0958",
        "01 23 45 67 89",
    ],
    "ip_address": [
        "192.168.0.1",
        "8.8.8.8",
        "fe80::1",
        "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "::ffff:10.1.2.3",
        "::1",
    ],
}

LEFT_ALONE: dict[PatternName, list[str]] = {
    "private_key": ["-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----", "BEGIN PRIVATE KEY"],
    "jwt": ["eyJ", "eyJhbGciOiJIUzI1NiJ9", "grey.eyJa.b"],
    "provider_key": ["task-management-with-many-words", "sk-", "sk-learn-is-not-one-of-those", "hf_hub", "risk-averse"],
    "github_token": ["ghp_short", "laughp_" + "a" * 36],
    "aws_key": ["AKIA", "AKIAIOSFODNN7EXAMPLELONGER", "akiaiosfodnn7example"],
    "bearer_token": ["the bearer of bad news", "bearer instruments are paper", "Bearer: none"],
    "iban": ["DE89370400440532013001", "XX89370400440532013000", "AB12 is a short code", "DE8937040044053201300"],
    "payment_card": [
        "4111111111111112",
        "1764533405123456789",
        "0.5500000000000004",
        "a4111111111111111b",
        "0000000000000000",
        "41111111",
    ],
    "email": ["@decorator", "left-pad@1.3.0", "ann@localhost", "a @ b.example", "price @ 3.50"],
    "phone": [
        "2026-11-30",
        "2026-11-30T20:10:05Z",
        "1f0e8d3c-0123-4567-8901-234567890123",
        "1764533405",
        "v1.22.333.4444",
        "12:30:45",
        "0.555.234.5678",
        "4bf92f3577b34da6a3ce929d0e0e4736",
        "1,234,567",
    ],
    "ip_address": [
        "12:30:45",
        "std::vector",
        "a::b",
        "1.2.3",
        "999.1.1.1",
        "00:1a:2b:3c:4d:5e",
        "1.2.3.4.5",
        "::",
        "::: note",
    ],
}


def redact(text: str, *patterns: PatternName) -> tuple[str, Counter[str]]:
    counts: Counter[str] = Counter()
    rules = RedactionRules(patterns=list(patterns or PATTERN_NAMES))
    return Redactor(rules).redact_text(text, counts), counts


@pytest.mark.parametrize(("name", "sample"), [(name, sample) for name in MASKED for sample in MASKED[name]])
@pytest.mark.parametrize("frame", ["{}", "see {} there", '"{}",', "({})", "x={} ", "\n{}\n", "ä {} €"])
def test_pattern_is_found_alone_and_inside_text(name: PatternName, sample: str, frame: str) -> None:
    text, counts = redact(frame.replace("{}", sample), name)
    assert text == frame.replace("{}", f"[redacted:{name}]")
    assert counts == {name: 1}


@pytest.mark.parametrize(("name", "sample"), [(name, sample) for name in LEFT_ALONE for sample in LEFT_ALONE[name]])
def test_text_that_only_looks_alike_is_left_alone(name: PatternName, sample: str) -> None:
    for text in (sample, f"see {sample} there"):
        assert redact(text, name) == (text, {})


@pytest.mark.parametrize("sample", [sample for samples in MASKED.values() for sample in samples])
def test_no_part_of_a_secret_is_left_with_all_patterns_on(sample: str) -> None:
    text, counts = redact(f"before {sample} after")
    assert text.startswith("before [redacted:")
    assert text.endswith("] after")
    assert sum(counts.values()) == 1


def test_bearer_and_named_secrets_keep_the_word_before_them() -> None:
    assert redact("Authorization: Bearer abc123def456")[0] == "Authorization: Bearer [redacted:bearer_token]"
    assert redact("BEARER " + "x" * 30)[0] == "BEARER [redacted:bearer_token]"
    assert redact(f"bearer {JWT}")[0] == "bearer [redacted:jwt]"
    secret = "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert redact(secret)[0] == "aws_secret_access_key = [redacted:aws_key]"


def test_private_key_whose_end_is_missing_goes_as_far_as_it_looks_like_a_key() -> None:
    text, counts = redact(PEM.rpartition("\n")[0] + "! cut off")
    assert text == "[redacted:private_key]! cut off"
    assert counts == {"private_key": 1}


def test_card_number_is_found_among_other_digits() -> None:
    assert redact("4111 1111 1111 1111 123")[0] == "[redacted:payment_card] 123"
    assert redact("12 4111111111111111 5500000000000004")[0] == "12 [redacted:payment_card] [redacted:payment_card]"


def test_iban_ends_where_its_country_says() -> None:
    assert redact("DE89 3704 0044 0532 0130 00 and so on")[0] == "[redacted:iban] and so on"
    assert redact("ab12 DE89 3704 0044 0532 0130 00")[0] == "ab12 [redacted:iban]"


@pytest.mark.parametrize(
    "piece",
    ["1", "1 ", "4111111111111111 ", "a:", "a@", "+1 ", "ab12 ", "1.2.3.4.", "-----BEGIN PRIVATE KEY-----",
     "eyJaaaaaa.", "sk-a ", "[", '{"a":'],
)  # fmt: skip
def test_work_grows_with_the_length_of_a_text_and_not_faster(piece: str) -> None:
    """Counted, not timed: a text of a hundred thousand characters ends at all."""
    redact(piece * (100_000 // len(piece)))


@given(st.text(alphabet=st.characters(codec=None), max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_text_can_be_redacted_and_what_is_redacted_stays(text: str) -> None:
    once, counts = redact(text)
    assert redact(once) == (once, {})
    assert (once == text) == (not counts)
