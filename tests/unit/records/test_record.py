"""Reading canonical rows and manifests back."""

import msgspec
import pytest
from records.json_pointer import MISSING, look_up, read_pointer, write_pointer
from records.manifest import Manifest, Notes, ShardStart, Source, decode_manifest, encode_manifest
from records.record import Record, read_records


def test_records_come_back_in_order() -> None:
    records = read_records(b'{"id":"a","input":"q","metadata":{"x":1}}\n{"id":"b","output":[1]}\n')
    assert records == [Record("a", "q", metadata={"x": 1}), Record("b", output=[1])]


def test_null_and_absent_are_the_same() -> None:
    assert read_records(b'{"context":null,"id":"a","input":1}\n') == [Record("a", 1)]


def test_nothing_gives_no_records() -> None:
    assert read_records(b"") == []


def test_a_cut_range_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        read_records(b'put":1}\n{"id":"a"}\n')


def test_a_manifest_comes_back_as_it_was() -> None:
    manifest = Manifest(
        sha256="0" * 64,
        bytes=10,
        records=1,
        shards=[ShardStart(0, 0)],
        notes=Notes(byte_order_mark=True, aliases={"question -> input": 1}),
        source=Source("import", "jsonl", 12, "s3://bucket/key"),
    )
    stored = encode_manifest(manifest)
    assert decode_manifest(stored) == manifest
    assert encode_manifest(decode_manifest(stored)) == stored


def test_notes_that_say_nothing_take_no_room() -> None:
    assert msgspec.json.encode(Notes()) == b"{}"


@pytest.mark.parametrize(
    ("tokens", "pointer"), [((), ""), (("a", 0, "b"), "/a/0/b"), (("a/b", "c~d", ""), "/a~1b/c~0d/")]
)
def test_pointers_are_written_as_rfc_6901_says(tokens: tuple[str | int, ...], pointer: str) -> None:
    assert write_pointer(tokens) == pointer
    assert read_pointer(pointer) == tuple(map(str, tokens))


@pytest.mark.parametrize("pointer", ["a", "/~", "/~2", "/a~"])
def test_what_is_no_pointer_is_refused(pointer: str) -> None:
    with pytest.raises(ValueError, match="JSON Pointer"):
        read_pointer(pointer)


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/a/1", 2),
        ("/a/01", MISSING),
        ("/a/2", MISSING),
        ("/a/-", MISSING),
        ("/b", None),
        ("/b/c", MISSING),
        ("/x", MISSING),
    ],
)
def test_a_pointer_finds_what_is_there(pointer: str, value: object) -> None:
    assert look_up({"a": [1, 2], "b": None}, read_pointer(pointer)) is value
