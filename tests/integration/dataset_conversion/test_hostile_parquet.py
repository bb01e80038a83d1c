"""Small files made to lie. Each has to be refused, or converted, within the decoder's own bounds of time and memory."""

import contextlib
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from dataset_conversion.conversion import Conversion, DatasetInvalidError, convert
from dataset_conversion.parquet_pages import inspect_parquet
from dataset_conversion.parquet_refusal import ParquetRefusedError
from records.limits import Limits
from records.row_errors import REASONS

CASES = Path(__file__).parents[2] / "cases" / "parquet-hostile"
OUTCOMES: dict[str, dict[str, Any]] = json.loads((CASES / "outcomes.json").read_text())


def convert_case(name: str) -> Conversion:
    """Convert with the first column as the input, so that no file is refused for the want of one."""
    source = (CASES / name).read_bytes()
    try:
        mapping = {"input": inspect_parquet(source, Limits()).leaves[0].path[0]}
    except ParquetRefusedError:
        mapping = None
    return convert(source, "parquet", BytesIO().write, mapping=mapping)


def with_outcome(must: str) -> list[str]:
    return [name for name, outcome in OUTCOMES.items() if outcome["must"] == must]


@pytest.mark.parametrize("name", with_outcome("refuse"))
def test_a_file_that_lies_is_refused(name: str) -> None:
    with pytest.raises(DatasetInvalidError) as refusal:
        convert_case(name)
    for error in refusal.value.errors:
        assert error.reason in REASONS - {"missing_input"}
        assert error.message


@pytest.mark.parametrize("name", with_outcome("convert"))
def test_an_honest_file_is_converted(name: str) -> None:
    assert convert_case(name).records == OUTCOMES[name]["records"]


@pytest.mark.parametrize("name", with_outcome("either"))
def test_a_doubtful_file_is_refused_or_converted(name: str) -> None:
    with contextlib.suppress(DatasetInvalidError):
        assert convert_case(name).records > 0


@pytest.mark.parametrize(
    ("name", "reason", "words"),
    [
        ("bomb_1g_string_1row_zstd.parquet", "parquet_page", ["'a'", "1073741824", "4194304", "row groups"]),
        ("bomb_1g_int64_brotli.parquet", "too_many_records", ["134217728", "100000"]),
        ("deep_2000.parquet", "depth", ["64"]),
        ("crypto_col_key.parquet", "parquet_encrypted", ["encrypted"]),
        ("enc_algo_plain_footer.parquet", "parquet_encrypted", ["encrypted"]),
        ("ext_file_path.parquet", "parquet_external", ["another file"]),
        ("dict_amplify_4MiBx100k.parquet", "decoded_too_large", []),
        ("delta_byte_array_amplify_2MiBx100k.parquet", "decoded_too_large", []),
        ("evade_list_ints_15x2M_1row.parquet", "decoded_too_large", []),
        ("utf8_bad.parquet", "not_utf8", []),
        ("nul_char.parquet", "nul", ["nul=replace"]),
        ("neg_rows.parquet", "parquet_corrupt", ["negative"]),
    ],
)
def test_the_refusal_says_what_it_is(name: str, reason: str, words: list[str]) -> None:
    with pytest.raises(DatasetInvalidError) as refusal:
        convert_case(name)
    error = refusal.value.errors[0]
    assert error.reason == reason
    assert all(word in error.message for word in words), error.message
