"""Recognizes files that are something else than their sender says, by their first bytes."""

from typing import NamedTuple

from records.row_errors import Reason

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a ZIP archive (or an Excel workbook)",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
}
_OTHER = {
    b"PAR1": "Parquet",
    b"ARROW1": "an Arrow file",
    b"Obj\x01": "Avro",
    b"ORC": "ORC",
    b"SQLite format 3": "SQLite",
}
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
UTF8_MARK = b"\xef\xbb\xbf"


class Mismatch(NamedTuple):
    """Why a file cannot be what it is said to be."""

    reason: Reason
    message: str


def find_mismatch_with_jsonl(start: bytes) -> Mismatch | None:
    """Return what the first bytes of a file betray when they are not the beginning of JSON text."""
    for signature, name in _COMPRESSED.items():
        if start.startswith(signature):
            return Mismatch("wrong_format", f"the file is {name}, not JSONL: send it uncompressed")
    for signature, name in _OTHER.items():
        if start.startswith(signature):
            advice = "send it with format=parquet" if name == "Parquet" else "convert it to JSONL or Parquet"
            return Mismatch("wrong_format", f"the file is {name}, not JSONL: {advice}")
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return Mismatch("not_utf8", f"the file is {name}: convert it to UTF-8")
    # JSON begins with an ASCII character, so that UTF-16 and UTF-32 without a mark show NUL bytes at once.
    if start[:2].count(0) == 1 and len(start) > 1:
        name = "UTF-32" if start[:4].count(0) == 3 else "UTF-16"
        return Mismatch("not_utf8", f"the file looks like {name}: convert it to UTF-8")
    return None


def find_mismatch_with_parquet(start: bytes) -> Mismatch | None:
    """Return what the first bytes of a file betray when they are not those of Parquet."""
    if start.startswith((b"PAR1", b"PARE")):
        return None
    for signature, name in (_COMPRESSED | _OTHER).items():
        if start.startswith(signature):
            return Mismatch("wrong_format", f"the file is {name}, not Parquet")
    if start.removeprefix(UTF8_MARK).lstrip()[:1] in {b"{", b"["}:
        return Mismatch("wrong_format", "the file looks like JSON text, not Parquet: send it with format=jsonl")
    return Mismatch("wrong_format", "the file is not Parquet: it does not begin with PAR1")
