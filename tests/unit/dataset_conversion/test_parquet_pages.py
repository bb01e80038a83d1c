"""The walk over footers and page headers, and the encoding that they are written in."""

import contextlib
from pathlib import Path

import pytest
from dataset_conversion.compact_protocol import CompactReader, MalformedError
from dataset_conversion.parquet_pages import inspect_parquet
from dataset_conversion.parquet_refusal import ParquetRefusedError
from hypothesis import given, settings
from hypothesis import strategies as st
from records.limits import Limits

CASES = Path(__file__).parents[2] / "cases" / "parquet-hostile"
SMALL = (CASES / "ok_v2_pages.parquet").read_bytes()


def read(data: bytes, elements_max: int = 1000) -> dict[int, object]:
    return CompactReader(data, 0, len(data), elements_max).read_struct()


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


class TestCompactProtocol:
    def test_every_type_of_a_field_is_read(self) -> None:
        fields = {
            1: b"\x11",  # true
            2: b"\x12",  # false
            3: b"\x13\xff",
            4: b"\x14\x03",
            5: b"\x15\x04",
            6: b"\x16" + varint(2**40),
            7: b"\x17" + b"\x00" * 7 + b"\x40",
            8: b"\x18\x02hi",
            9: b"\x19\x25\x02\x04",
            10: b"\x1a\x11\x01",
            11: b"\x1c\x15\x02\x00",
            12: b"\x1d" + b"u" * 16,
        }
        expected = {
            1: True,
            2: False,
            3: -1,
            4: -2,
            5: 2,
            6: 2**39,
            7: 2.0,
            8: b"hi",
            9: [1, 2],
            10: [True],
            11: {1: 1},
            12: b"u" * 16,
        }
        assert read(b"".join(fields.values()) + b"\x00") == expected

    def test_field_numbers_may_be_written_out(self) -> None:
        assert read(b"\x05" + varint(2 * 300) + b"\x02\x00") == {300: 1}

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"", "cut off"),
            (b"\x15", "cut off"),
            (b"\x18\x05hi", "cut off"),
            (b"\x17\x00", "cut off"),
            (b"\x15\x80\x00\x00", "too long"),
            (b"\x16" + b"\xff" * 11 + b"\x00", "too long"),
            (b"\x16" + b"\xff" * 9 + b"\x7f\x00", "too long"),
            (b"\x15" + varint(2**33) + b"\x00", "range"),
            (b"\x14" + varint(2**17) + b"\x00", "range"),
            (b"\x15\x02\x05\x02\x02\x00", "twice"),
            (b"\x05\x00\x00", "impossible number"),
            (b"\x1b\x00\x00", "impossible type"),
            (b"\x1e\x00", "impossible type"),
            (b"\x19\xf5" + varint(2**31) + b"\x00", "longer than the input"),
            (b"\x1c" * 40, "too deep"),
            (b"\x19\x19" * 40, "too deep"),
        ],
    )
    def test_what_no_writer_writes_is_refused(self, data: bytes, words: str) -> None:
        with pytest.raises(MalformedError, match=words):
            read(data)

    def test_elements_are_counted(self) -> None:
        with pytest.raises(MalformedError, match="elements"):
            read(b"\x19\xf5\x14" + b"\x02" * 20 + b"\x00", elements_max=20)

    @given(st.binary(max_size=64))
    def test_any_bytes_give_a_structure_or_a_refusal(self, data: bytes) -> None:
        with contextlib.suppress(MalformedError):
            assert isinstance(read(data), dict)


def test_an_honest_file_passes() -> None:
    inspection = inspect_parquet(SMALL, Limits())
    assert inspection.rows == 500
    assert [leaf.path[0] for leaf in inspection.leaves] == ["id", "input", "n", "m", "m"]
    # Two entries in each map.
    assert inspection.values == 500 * 3 + 1000 * 2


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(records=499), "too_many_records"),
        (Limits(columns=4), "too_large"),
        (Limits(row_groups=0), "too_large"),
        (Limits(page_bytes=100), "parquet_page"),
        (Limits(output_bytes=6000), "decoded_too_large"),
    ],
)
def test_each_limit_is_held(limits: Limits, reason: str) -> None:
    with pytest.raises(ParquetRefusedError) as refusal:
        inspect_parquet(SMALL, limits)
    assert refusal.value.reason == reason


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_passes_or_is_refused_in_words(data: st.DataObject) -> None:
    damaged = bytearray(SMALL)
    footer = len(SMALL) - 8 - int.from_bytes(SMALL[-8:-4], "little")
    for _ in range(data.draw(st.integers(1, 4))):
        in_footer = data.draw(st.booleans())
        position = data.draw(st.integers(footer if in_footer else 0, len(SMALL) - 1))
        damaged[position] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ParquetRefusedError):
        assert 0 < inspect_parquet(bytes(damaged), Limits()).rows <= Limits().records


@pytest.mark.parametrize("size", range(0, len(SMALL), 211))
def test_a_cut_file_is_refused(size: int) -> None:
    with pytest.raises(ParquetRefusedError):
        inspect_parquet(SMALL[:size], Limits())
