"""Why a dataset was refused, row by row, in a form that a person can act on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NoReturn, get_args

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

# Names of members and columns have no bound of their own; an answer and a row of a database have.
_FIELD_CHARACTERS_MAX = 500
_MESSAGE_CHARACTERS_MAX = 1000


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
        At least one, in the order of the rows; not more than the limit on errors. Pointers and messages are cut where
        names in them are very long, and NUL characters in names become U+FFFD: no database text can hold them.
    """

    def __init__(self, errors: Sequence[RowError]) -> None:
        if not errors:
            message = "a refusal needs at least one error"
            raise ValueError(message)
        self.errors: tuple[RowError, ...] = tuple(map(_presentable, errors))
        first = self.errors[0]
        place = f"row {first.row}" if first.row is not None else "file"
        super().__init__(f"{place}: {first.reason} ({len(self.errors)} errors)")


def _presentable(error: RowError) -> RowError:
    field = None if error.field is None else _cut(error.field, _FIELD_CHARACTERS_MAX)
    return replace(error, field=field, message=_cut(error.message, _MESSAGE_CHARACTERS_MAX))


def _cut(text: str, characters_max: int) -> str:
    text = text.replace("\x00", "\ufffd")
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


class ErrorCollector:
    """Collects what is wrong with a file until enough is known to refuse it.

    Parameters
    ----------
    limit
        Errors after which checking ends.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._errors: list[RowError] = []

    def __bool__(self) -> bool:
        return bool(self._errors)

    def add(self, error: RowError) -> None:
        """Note an error.

        Raises
        ------
        DatasetInvalidError
            This was the last one to look for.
        """
        self._errors.append(error)
        if len(self._errors) >= self._limit:
            raise DatasetInvalidError(self._in_file_order())

    def refuse(self, error: RowError) -> NoReturn:
        """Note an error after which nothing more can be learned, and end.

        Raises
        ------
        DatasetInvalidError
            With all errors so far.
        """
        self._errors.append(error)
        raise DatasetInvalidError(self._in_file_order())

    def raise_if_any(self) -> None:
        """End the conversion of a file in which errors were found.

        Raises
        ------
        DatasetInvalidError
            There is at least one error.
        """
        if self._errors:
            raise DatasetInvalidError(self._in_file_order())

    def _in_file_order(self) -> list[RowError]:
        # Rows are looked at some hundreds at a time, for one kind of fault after the other.
        return sorted(self._errors, key=lambda error: error.row or 0)
