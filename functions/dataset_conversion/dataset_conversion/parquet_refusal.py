"""The exception in which the parts of Parquet conversion say why a file is refused."""

from records.row_errors import Reason


class ParquetRefusedError(Exception):
    """A Parquet file is refused as a whole.

    Parameters
    ----------
    reason
        Stable word for programs.
    message
        What is wrong and what to do about it.
    field
        The column that is meant, as a JSON Pointer; ``None`` for the file.
    """

    def __init__(self, reason: Reason, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
        self.field = field


def corrupt(what: str, field: str | None = None) -> ParquetRefusedError:
    """Return the refusal of a file that contradicts itself or the format."""
    return ParquetRefusedError("parquet_corrupt", f"the file is damaged or no valid Parquet: {what}", field)
