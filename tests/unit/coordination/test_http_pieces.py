import base64
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import orjson
import pytest
from coordination.clock import format_instant, read_instant
from coordination.errors import Fault, InvalidCursorError, InvalidRequestError, ProblemError, UnauthenticatedError
from coordination.http.operation import path_pattern
from coordination.http.pages import decode_cursor, encode_cursor, make_page, read_number, read_text
from coordination.http.problem import encode_problem, problem_document
from coordination.http.request import read_request


def event(**changes: Any) -> dict[str, Any]:
    return {
        "rawPath": "/v1/projects",
        "rawQueryString": "",
        "headers": {},
        "requestContext": {"requestId": "gateway", "http": {"method": "GET", "path": "/v1/projects"}},
        "isBase64Encoded": False,
    } | changes


def test_request_id_is_the_gateways_or_the_fallback() -> None:
    assert read_request(event(), "lambda").request_id == "gateway"
    assert read_request(event(requestContext={"http": {"method": "GET"}}), "lambda").request_id == "lambda"


@pytest.mark.parametrize("changes", [{}, {"body": None}, {"body": ""}, {"body": "", "isBase64Encoded": True}])
def test_absent_null_and_empty_bodies_are_no_bytes(changes: dict[str, Any]) -> None:
    assert read_request(event(**changes), "").content == b""


def test_base64_and_plain_bodies_are_the_same_bytes() -> None:
    plain = read_request(event(body="ä"), "").content
    encoded = base64.b64encode("ä".encode()).decode()
    assert read_request(event(body=encoded, isBase64Encoded=True), "").content == plain == "ä".encode()


def test_broken_base64_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        read_request(event(body="a", isBase64Encoded=True), "")


def test_header_names_are_lower_case_and_absent_headers_are_none() -> None:
    assert read_request(event(headers={"X-Odd": "A, B"}), "").headers == {"x-odd": "A, B"}
    assert read_request(event(headers=None), "").headers == {}


def test_query_keeps_order_blanks_and_repetition() -> None:
    request = read_request(event(rawQueryString="b=2&a=&b=%20x&c"), "")
    assert request.query == [("b", "2"), ("a", ""), ("b", " x"), ("c", "")]
    with pytest.raises(InvalidRequestError):
        request.query_fields()


@pytest.mark.parametrize("changes", [{"rawPath": "/a\0"}, {"rawPath": "/\ud800"}, {"rawQueryString": "a=%00"},
                                     {"rawQueryString": "%00=a"}])  # fmt: skip
def test_address_that_cannot_be_stored_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        read_request(event(**changes), "")


def test_cursor_is_read_back_by_the_list_that_wrote_it() -> None:
    cursor = encode_cursor("runs", ["2026-01-01T00:00:00+00:00", 7])
    assert decode_cursor("runs", cursor, datetime.fromisoformat, read_number(9)) == [
        datetime(2026, 1, 1, tzinfo=UTC),
        7,
    ]
    assert decode_cursor("runs", None, str) is None


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "!!!", "ä", encode_cursor("other", ["a", 1]), encode_cursor("runs", ["a"]),
     encode_cursor("runs", ["a", 10]),
     encode_cursor("runs", ["a", -1]), encode_cursor("runs", ["a", 1.0]), encode_cursor("runs", ["a\0", 1]),
     encode_cursor("runs", [1, 1]), base64.urlsafe_b64encode(b'"runs"').decode(),
     base64.urlsafe_b64encode(b'{"runs": 1}').decode()],
)  # fmt: skip
def test_cursor_that_is_none_of_ours_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidCursorError):
        decode_cursor("runs", cursor, read_text, read_number(9))


def test_page_ends_when_no_row_is_left_over() -> None:
    def identity(row: int) -> int:
        return row

    more = make_page("numbers", [1, 2, 3], 2, identity, lambda row: [row])
    assert more.items == [1, 2]
    assert decode_cursor("numbers", more.next_cursor, read_number(9)) == [2]
    assert make_page("numbers", [1, 2], 2, identity, lambda row: [row]).next_cursor is None
    assert make_page("numbers", [], 2, identity, lambda row: [row]).items == []


def test_problem_document_has_its_members_and_extras() -> None:
    error = InvalidRequestError.at([Fault("/b", "x"), Fault("", "y")])
    document = problem_document(error, "id")
    assert document["detail"] == "2 things to correct at /b, the body."
    assert document["errors"] == [{"pointer": "/b", "message": "x"}, {"pointer": "", "message": "y"}]
    extra = problem_document(ProblemError("d", extra={"claim": "c"}), "id")
    assert (extra["claim"], extra["status"], extra["type"]) == ("c", 500, "/docs#internal_error")
    assert "errors" not in extra


def test_problem_headers_say_when_to_retry_and_how_to_authenticate() -> None:
    body, headers = encode_problem(ProblemError("d", retry_after_seconds=7), "id")
    assert headers == {"retry-after": "7"}
    assert orjson.loads(body)["request_id"] == "id"
    assert encode_problem(UnauthenticatedError("d"), "id")[1] == {"www-authenticate": "Bearer"}


def test_path_pattern_takes_one_segment_per_parameter() -> None:
    pattern = path_pattern("/v1/projects/{project}/datasets:import")
    match = pattern.match("/v1/projects/demo/datasets:import")
    assert match is not None
    assert match["project"] == "demo"
    assert pattern.match("/v1/projects/a/b/datasets:import") is None
    assert pattern.match("/v1/projects//datasets:import") is None
    assert pattern.match("/v1/projects/demo/datasets:importer") is None


def test_instants_are_written_in_utc_with_z() -> None:
    instant = datetime(2026, 1, 1, 2, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert format_instant(instant) == "2026-01-01T00:00:00.000005Z"


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-11-30T02:00:00Z", datetime(2026, 11, 30, 2, tzinfo=UTC)),
        ("2026-11-30t02:00:00z", datetime(2026, 11, 30, 2, tzinfo=UTC)),
        ("2026-11-30T02:00:00-00:00", datetime(2026, 11, 30, 2, tzinfo=UTC)),
        ("2026-11-30T02:00:00+23:59", datetime(2026, 11, 29, 2, 1, tzinfo=UTC)),
        ("2026-11-30T02:00:00.5Z", datetime(2026, 11, 30, 2, 0, 0, 500_000, tzinfo=UTC)),
        ("2026-11-30T02:00:00.000001-01:30", datetime(2026, 11, 30, 3, 30, 0, 1, tzinfo=UTC)),
        ("2024-02-29T23:59:59Z", datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_instant_of_rfc_3339_is_read_in_utc(text: str, instant: datetime) -> None:
    found = read_instant(text)
    assert (found, found.tzinfo) == (instant, UTC)
    assert read_instant(format_instant(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30T02:00Z",
        "2026-11-30T02Z",
        "2026-11-30T02:00:00",
        "2026-11-30 02:00:00Z",
        "2026-11-30_02:00:00Z",
        "2026-11-30T02:00:00 00:00",
        "2026-11-30T02:00:00+01",
        "2026-11-30T02:00:00+0100",
        "2026-11-30T02:00:00+24:00",
        "2026-11-30T02:00:00+01:60",
        "2026-11-30T02:00:00+01:00:30",
        "2026-11-30T02:00:00\N{MINUS SIGN}01:00",
        "2026-11-30T02:00:00,5Z",
        "2026-11-30T02:00:00.Z",
        "2026-11-30T02:00:00.0000001Z",
        "20261130T020000Z",
        "2026-W49-1T02:00:00Z",
        "2026-334T02:00:00Z",
        "2026-02-29T02:00:00Z",
        "2026-11-30T24:00:00Z",
        "2026-11-30T02:60:00Z",
        "2026-12-31T23:59:60Z",
        "0000-01-01T00:00:00Z",
        "+2026-11-30T02:00:00Z",
        "2026-11-30T02:00:00Z\n",
        " 2026-11-30T02:00:00Z",
        "\N{FULLWIDTH DIGIT TWO}026-11-30T02:00:00Z",
        "now",
        "",
    ],
)
def test_anything_else_is_no_instant_and_is_told_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"RFC 3339, such as 2026-11-30T02:00:00Z"):
        read_instant(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"])
def test_instant_whose_year_in_utc_has_no_four_digits_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        read_instant(text)
