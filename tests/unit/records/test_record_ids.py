"""Ids of a dataset: unique, derived where missing."""

import hashlib

from records.record_ids import RecordIds


def test_an_id_is_taken_once_and_the_error_names_both_rows() -> None:
    ids = RecordIds()
    assert ids.claim("a", 3, "/id") is None
    error = ids.claim("a", 7, "/key")
    assert error is not None
    assert (error.row, error.field, error.reason) == (7, "/key", "duplicate_id")
    assert "row 3" in error.message


def test_two_normalizations_of_one_id_are_one_id() -> None:
    ids = RecordIds()
    assert ids.claim("caf\u00e9", 1, "/id") is None
    error = ids.claim("cafe\u0301", 2, "/id")
    assert error is not None
    assert "NFC" in error.message


def test_case_and_spaces_make_different_ids() -> None:
    ids = RecordIds()
    assert [ids.claim(name, row, "/id") for row, name in enumerate(["a", "A", "a ", " a"], 1)] == [None] * 4


def test_a_derived_id_comes_from_the_content() -> None:
    digest = hashlib.sha256(b'{"input":1}').hexdigest()
    assert RecordIds().derive(b'{"input":1}', 1) == f"r-{digest[:16]}"


def test_repeats_are_numbered_in_file_order() -> None:
    ids = RecordIds()
    first, second, other, third = (ids.derive(content, row) for row, content in enumerate([b"x", b"x", b"y", b"x"], 1))
    assert (second, third) == (f"{first}-2", f"{first}-3")
    assert other != first


def test_a_derived_id_avoids_one_that_a_row_has() -> None:
    derived = RecordIds().derive(b"x", 1)
    ids = RecordIds()
    ids.claim(derived, 1, "/id")
    assert ids.derive(b"x", 2) == f"{derived}-2"


def test_a_row_may_not_name_an_id_that_was_derived() -> None:
    ids = RecordIds()
    error = ids.claim(ids.derive(b"x", 1), 2, "/id")
    assert error is not None
    assert error.reason == "duplicate_id"


def test_many_ids_are_taken_together_or_not_at_all() -> None:
    ids = RecordIds()
    assert ids.claim_all(["a", "b"], [1, 2])
    assert not ids.claim_all(["c", "c"], [3, 4])
    assert not ids.claim_all(["d", "a"], [3, 4])
    assert not ids.claim_all(["e", None], [3, 4])
    assert not ids.claim_all(["é", "f"], [3, 4])
    assert all(ids.claim(name, 5, "/id") is None for name in "cdef")


def test_an_id_of_many_is_found_with_its_row() -> None:
    ids = RecordIds()
    assert ids.claim_all(["a", "b"], [1, 2])
    assert ids.claim_all(["c", "d"], [3, 4])
    assert not ids.claim_all(["e", "d"], [5, 6])
    assert ids.claim("e", 5, "/id") is None
    error = ids.claim("d", 6, "/id")
    assert error is not None
    assert "row 4" in error.message
