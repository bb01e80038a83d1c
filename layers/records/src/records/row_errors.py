"""Why a dataset was refused, row by row, in a form that a person can act on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

type Reason = Literal[
    "alias_clash",
    "decoded_too_large",
    "depth",
    "duplicate_column",
    "duplicate_id",
    "duplicate_key",
    "empty",
    "integer_range",
    "invalid_field",
    "invalid_id",
    "missing_input",
    "not_finite",
    "not_json",
    "not_object",
    "not_utf8",
    "nul",
    "parquet_corrupt",
    "parquet_encrypted",
    "parquet_external",
    "parquet_page",
    "row_too_large",
    "surrogate",
    "timestamp_range",
    "too_large",
    "too_many_records",
    "unsupported_type",
    "wrong_format",
]
REASONS: frozenset[str] = frozenset(get_args(Reason.__value__))


@dataclass(frozen=True, slots=True)
class RowError:
    """One thing that is wrong with a dataset.

    Parameters
    ----------
    row
        1-based: the line of a JSONL file (blank lines counted), the row of a Parquet file; ``None`` when the whole
        file is meant.
    field
        Where in the row as its sender wrote it: a JSON Pointer (RFC 6901), for Parquet beginning with the column;
        ``None`` when the whole row or file is meant.
    reason
        Stable word for programs.
    message
        What is wrong and what to do about it, for people. Holds no text of the dataset other than field names and
        ids.
    """

    row: int | None
    field: str | None
    reason: Reason
    message: str


class DatasetInvalidError(Exception):
    """A dataset was read and is refused; nothing of it has been published.

    Parameters
    ----------
    errors
        At least one, in the order of the rows; not more than the limit on errors.
    """

    def __init__(self, errors: Sequence[RowError]) -> None:
        if not errors:
            message = "a refusal needs at least one error"
            raise ValueError(message)
        self.errors: tuple[RowError, ...] = tuple(errors)
        first = self.errors[0]
        place = f"row {first.row}" if first.row is not None else "file"
        super().__init__(f"{place}: {first.reason} ({len(self.errors)} errors)")
