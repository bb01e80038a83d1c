import time
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from coordination.errors import InvalidRequestError, NotFoundError, PayloadTooLargeError, UnsupportedMediaTypeError
from coordination.http.request import Request
from coordination.http.validation import json_pointer, parse_json_object, read_body, read_path_id, read_query
from coordination.models import Instant, QueryModel, RequestModel
from pydantic import Field


class Inner(RequestModel):
    count: Annotated[int, Field(ge=1)] = 1


class Body(RequestModel):
    name: Annotated[str, Field(max_length=3, pattern="^[a-z]*$")]
    inner: Inner = Inner()
    at: Instant | None = None
    items: Annotated[list[Inner], Field(default_factory=list[Inner])]
    free: Annotated[dict[str, Any], Field(default_factory=dict[str, Any])]


class Query(QueryModel):
    limit: Annotated[int, Field(ge=1)] = 5
    flag: bool = False


def request(content: bytes = b"", content_type: str = "application/json", **changes: Any) -> Request:
    return Request("id", "POST", "/", {"content-type": content_type}, changes.get("query", []), content)


def faults_of(body: str) -> list[dict[str, str]]:
    with pytest.raises(InvalidRequestError) as caught:
        read_body(request(body.encode()), Body)
    return [dict(fault) for fault in caught.value.errors]


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON "])
def test_json_is_taken_under_its_content_type(content_type: str) -> None:
    assert read_body(request(b'{"name": "a"}', content_type), Body).name == "a"


@pytest.mark.parametrize("content_type", ["", "text/json", "application/problem+json", "application/x-ndjson"])
def test_other_content_type_is_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaTypeError):
        read_body(request(b'{"name": "a"}', content_type), Body)


def test_body_over_its_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(PayloadTooLargeError):
        read_body(request(b"x" * (1024 * 1024 + 1)), Body)


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ("{}", ["/name"]),
        ('{"name": "toolong"}', ["/name"]),
        ('{"name": 1}', ["/name"]),
        ('{"name": "a", "inner": {"count": 0}}', ["/inner/count"]),
        ('{"name": "a", "inner": {"count": "1"}}', ["/inner/count"]),
        ('{"name": "a", "items": [{}, {"count": 1.5}]}', ["/items/1/count"]),
        ('{"name": "a", "at": "2026-01-01T00:00:00"}', ["/at"]),
        ('{"name": "a", "at": "2026-01-01"}', ["/at"]),
        ('{"name": "a", "at": "2026"}', ["/at"]),
        ('{"name": "a", "at": "2026-01-01T00:00Z"}', ["/at"]),
        ('{"name": "a", "at": "2026-01-01 00:00:00Z"}', ["/at"]),
        ('{"name": "a", "at": "2026-01-01_00:00:00Z"}', ["/at"]),
        ('{"name": "a", "at": "-62135596800.5"}', ["/at"]),
        ('{"name": "a", "at": 1767225600}', ["/at"]),
        ('{"name": "a", "at": 1767225600.5}', ["/at"]),
        ('{"name": "a", "at": true}', ["/at"]),
        ('{"name": "a", "at": ["2026-01-01T00:00:00Z"]}', ["/at"]),
        ('{"name": "a", "at": "0001-01-01T00:00:00+02:00"}', ["/at"]),
        ('{"name": "a", "x/y": 1, "x~y": 2}', ["/x~1y", "/x~0y"]),
        ('{"name": "a", "name": "b"}', ["/name"]),
        ('{"name": "a", "free": {"x/y": 1, "x/y": 2}}', ["/x~1y"]),
    ],
)
def test_every_place_that_is_wrong_is_named(body: str, pointers: list[str]) -> None:
    assert [fault["pointer"] for fault in faults_of(body)] == pointers


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"many": [], "labels": {}}', "needs at least 1 item"),
        ('{"many": [1, 2, 3], "labels": {}}', "takes at most 2 items"),
        ('{"many": [1], "labels": {"a": 1, "b": 2}}', "takes at most 1 item"),
    ],
)
def test_wrong_number_of_items_is_said_plainly(body: str, message: str) -> None:
    class Numbered(RequestModel):
        many: Annotated[list[int], Field(min_length=1, max_length=2)]
        labels: Annotated[dict[str, int], Field(max_length=1)]

    with pytest.raises(InvalidRequestError) as caught:
        read_body(request(body.encode()), Numbered)
    assert [fault["message"] for fault in caught.value.errors] == [message]


def test_message_does_not_repeat_the_value() -> None:
    assert all("s3cret" not in fault["message"] for fault in faults_of('{"name": "s3cret"}'))


def test_faults_are_listed_up_to_a_bound() -> None:
    many = ",".join(f'"f{n}": 1' for n in range(100))
    assert len(faults_of('{"name": "a", ' + many + "}")) == 20


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("{", "line 1, column 2"),
        ("{'name': 1}", "not JSON"),
        ('{"name": "a"} x', "not JSON"),
        ("[]", "object"),
        ('{"free": {"a": NaN}, "name": "a"}', "NaN"),
        ('{"free": {"a": -Infinity}, "name": "a"}', "-Infinity"),
        ('{"free": {"a": 1e999}, "name": "a"}', "double"),
        ('{"free": {"a": 18446744073709551616}, "name": "a"}', "64 bits"),
        ('{"free": {"a": [["\\u0000"]]}, "name": "a"}', "NUL"),
        ('{"free": {"\\u0000": 1}, "name": "a"}', "NUL"),
        ('{"name": "\ufeff"' + "\x01}", "not JSON"),
    ],
)
def test_what_a_lenient_parser_would_take_is_refused(body: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        read_body(request(body.encode()), Body)


@pytest.mark.parametrize(
    "body", ['{"name": "a", "free": {"a": 18446744073709551615}}', '{"name": "a", "free": {"a": "\\\\u0000"}}']
)
def test_neighbours_of_what_is_refused_are_taken(body: str) -> None:
    assert read_body(request(body.encode()), Body).name == "a"


def test_many_names_of_which_one_stands_twice_are_refused_at_once() -> None:
    names = ",".join(f'"{number:x}":1' for number in range(60_000))
    started = time.process_time()
    with pytest.raises(InvalidRequestError) as caught:
        parse_json_object(f'{{"id":1,{names},"id":2}}')
    # Compared pair by pair these take half a minute.
    assert time.process_time() - started < 5
    assert [fault["pointer"] for fault in caught.value.errors] == ["/id"]


def test_names_that_stand_twice_are_listed_up_to_a_bound() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parse_json_object("{" + ",".join(f'"{number % 100}":1' for number in range(200)) + "}")
    assert len(caught.value.errors) == 20


def test_fault_in_a_name_is_named_by_the_place_of_the_name() -> None:
    class Labelled(RequestModel):
        labels: dict[Annotated[str, Field(min_length=2)], str]

    with pytest.raises(InvalidRequestError) as caught:
        read_body(request(b'{"labels": {"/": "x"}}'), Labelled)
    assert [fault["pointer"] for fault in caught.value.errors] == ["/labels/~1"]


def test_fault_in_a_member_of_a_union_is_named_without_the_member() -> None:
    class Cat(RequestModel):
        kind: Literal["cat"]
        lives: int

    class Dog(RequestModel):
        kind: Literal["dog"]

    class Pets(RequestModel):
        pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]

    body = b'{"pets": [{"kind": "dog"}, {"kind": "cat"}, {"kind": "cat", "lives": "many"}, {"kind": "dog", "x": 1}]}'
    with pytest.raises(InvalidRequestError) as caught:
        read_body(request(body), Pets)
    assert [fault["pointer"] for fault in caught.value.errors] == ["/pets/1/lives", "/pets/2/lives", "/pets/3/x"]


@pytest.mark.parametrize("value", ['"never"', "1.5", "null", '["x"]'])
def test_value_that_is_no_member_of_a_union_is_named_without_the_members(value: str) -> None:
    class Compared(RequestModel):
        baselines: list[UUID | Literal["previous"]]

    with pytest.raises(InvalidRequestError, match=r"to correct at /baselines/0\.$") as caught:
        read_body(request(f'{{"baselines": [{value}]}}'.encode()), Compared)
    assert {fault["pointer"] for fault in caught.value.errors} == {"/baselines/0"}


def test_body_that_is_not_utf_8_says_where() -> None:
    with pytest.raises(InvalidRequestError, match="byte 3"):
        read_body(request(b'{"\xff'), Body)


def test_instant_is_kept_in_utc() -> None:
    body = read_body(request(b'{"name": "a", "at": "2026-01-01T02:00:00+02:00"}'), Body)
    assert body.at is not None
    assert body.at.isoformat() == "2026-01-01T00:00:00+00:00"


def test_instant_in_another_form_is_told_an_example() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_body(request(b'{"name": "a", "at": "2026-01-01 00:00Z"}'), Body)
    assert [fault["pointer"] for fault in caught.value.errors] == ["/at"]
    assert "RFC 3339, such as 2026-11-30T02:00:00Z" in caught.value.errors[0]["message"]


def test_query_is_read_from_text() -> None:
    assert read_query(request(query=[("limit", "7"), ("flag", "true")]), Query) == Query(limit=7, flag=True)


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ([("limit", "0")], "/limit"),
        ([("limit", "")], "/limit"),
        ([("limit", "1"), ("limit", "1")], "/limit"),
        ([("limits", "1")], "/limits"),
    ],
)
def test_query_that_is_wrong_names_its_parameter(query: list[tuple[str, str]], pointer: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_query(request(query=query), Query)
    assert [fault["pointer"] for fault in caught.value.errors] == [pointer]


def test_pointer_escapes_what_rfc_6901_says() -> None:
    assert json_pointer(["a/b", "c~d", 0, ""]) == "/a~1b/c~0d/0/"
    assert json_pointer([]) == ""


def test_id_in_a_path_that_is_none_names_nothing() -> None:
    known = "4e9b6c31-7d88-4031-8d8a-3d7c8f51aa44"
    assert read_path_id(known, "run") == UUID(known)
    for reference in ("", "none", known[:-1], "4e9b6c31-7d88-4031-8d8a-3d7c8f51aa4g"):
        with pytest.raises(NotFoundError, match="There is no such run; its id is a UUID"):
            read_path_id(reference, "run")


def test_an_id_that_is_none_is_told_with_an_example() -> None:
    class Compared(QueryModel):
        baseline: UUID

    with pytest.raises(InvalidRequestError) as caught:
        read_query(request(query=[("baseline", "lastest")]), Compared)
    (fault,) = caught.value.errors
    assert fault["message"] == "query parameter: must be an id, such as 8d1f0a52-6c3e-4b7a-9e21-5f40c7d6ab13"
