"""Coverage-guided fuzzing of the walk over Parquet's footers and page headers.

    make fuzz FUZZ_SECONDS=600

Whatever the bytes are, the walk says what they claim or refuses them in words; any other exception is a finding.
"""

import sys
from typing import Any

import atheris as untyped_atheris
from records.limits import Limits
from records.row_errors import REASONS

# Its functions come out of a compiled module, unseen by type checkers.
atheris: Any = untyped_atheris

with atheris.instrument_imports(include=["dataset_conversion"]):
    from dataset_conversion.parquet_pages import inspect_parquet
    from dataset_conversion.parquet_refusal import ParquetRefusedError

# Small, so that a few bytes of input can reach each of them.
LIMITS = Limits(input_bytes=1 << 20, output_bytes=1 << 16, records=1000, columns=20, row_groups=10, page_bytes=1 << 14)


def fuzz_one(data: bytes) -> None:
    """Walk over one input."""
    try:
        inspection = inspect_parquet(data, LIMITS)
    except ParquetRefusedError as refusal:
        if refusal.reason not in REASONS or not str(refusal):
            raise AssertionError(f"refused without words: {refusal.reason!r}") from refusal
        return
    assert 0 < inspection.rows <= LIMITS.records
    assert 0 < len(inspection.leaves) <= LIMITS.columns


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()
