"""Reads JSON texts that are values of a column."""

from typing import Any, Literal

import msgspec
import orjson
from records.canonical_json import SORTED, NotCanonicalError, canonical_float
from records.row_fields import RowProblem

from dataset_conversion.nesting import is_deeper
from dataset_conversion.strict_json import Reading, is_guilty, read_strictly


def is_written_alike(number: float) -> bool:
    """Tell whether fast writers write a number as RFC 8785 does; others of the numbers they may, too."""
    return (1e-5 <= number < 1e9 or -1e9 < number <= -1e-5) and not number.is_integer()


def read_float(digits: str) -> float | orjson.Fragment:
    """Read a number with a fraction or exponent so that orjson writes it as RFC 8785 does.

    Raises
    ------
    NotCanonicalError
        It is beyond the range of a double.
    """
    number = float(digits)
    return number if is_written_alike(number) else canonical_float(number)


_READ = msgspec.json.Decoder(Any, float_hook=read_float).decode


class JsonTextReader:
    """Reads JSON texts with the rules that hold for rows of JSONL.

    Parameters
    ----------
    nul
        What to do with NUL characters.
    """

    def __init__(self, nul: Literal["refuse", "replace"]) -> None:
        self._nul: Literal["refuse", "replace"] = nul
        self.replaced_nuls = 0

    def read(self, text: str, depth: int) -> Reading:
        """Return the value of a text that may be nested `depth` deep, and what is wrong with it."""
        encoded = text.encode()
        if is_deeper(encoded, depth):
            return Reading(None, False, [RowProblem(None, "depth", f"nested more than {depth} deep")], 0)
        try:
            value = _READ(encoded)
            is_suspicious = orjson.dumps(value, None, SORTED).count(b":") != encoded.count(b":") or b"\\u00" in encoded
        except (msgspec.MsgspecError, orjson.JSONEncodeError, NotCanonicalError):
            is_suspicious = True
        else:
            if not (is_suspicious and is_guilty(encoded)):
                return Reading(value, True, [], 0)
        reading = read_strictly(encoded, self._nul)
        self.replaced_nuls += reading.replaced_nuls
        return reading
