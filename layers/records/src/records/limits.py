"""What a dataset may cost: the bounds that publication holds every file to."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one conversion. Every error that names one of them states the bound and the size met.

    Parameters
    ----------
    input_bytes, output_bytes
        Size of the file as sent, and of the canonical object made from it.
    records
        Rows in the file.
    row_bytes
        One line of the source without its end, and one canonical row.
    depth
        Nesting of a source row; its outer object counts 1.
    errors
        A file is checked until so many errors have been found.
    columns, row_groups
        Leaf columns and row groups of a Parquet file.
    page_bytes
        One Parquet page, compressed and uncompressed.
    decoder_address_space_bytes
        Address space of the process that decodes Parquet.
    decoder_seconds, decoder_seconds_per_mib
        How long a Parquet decoder may keep its caller waiting, and the processor time that it may use: so much, and so
        much more for each MiB of the file. The time that the caller spends on taking the rows does not count.
    """

    input_bytes: int = 64 * MIB
    output_bytes: int = 64 * MIB
    records: int = 100_000
    row_bytes: int = 4 * MIB
    depth: int = 64
    errors: int = 20
    columns: int = 1_000
    row_groups: int = 10_000
    page_bytes: int = 4 * MIB
    decoder_address_space_bytes: int = 1024 * MIB
    decoder_seconds: float = 10.0
    decoder_seconds_per_mib: float = 0.5
