"""What is written as an array literal is what the server reads."""

from typing import TYPE_CHECKING, Any

import pytest
from coordination.array_literals import write_booleans, write_numbers, write_texts
from coordination.database import Database
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from conftest import FreshDatabase

READ = """
SELECT %(floats)s::double precision[] AS floats, %(integers)s::integer[] AS integers,
       %(booleans)s::boolean[] AS booleans, %(texts)s::text[] AS texts
"""
AWKWARD = ["", " ", "NULL", "null", "{", "}", ",", '"', "\\", '\\"', 'a"b\\c', "{1,2}", "\n\t\r", "ä€🙂", "a, b", None]


@pytest.mark.parametrize("count", [0, 1, 1000])
def test_awkward_texts_come_back_as_they_were(app: Database, count: int) -> None:
    texts = (AWKWARD * (count // len(AWKWARD) + 1))[:count]
    assert read(app, [], [], [], texts)["texts"] == texts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    floats=st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=20),
    integers=st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=20),
    booleans=st.lists(st.none() | st.booleans(), max_size=20),
    texts=st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=20),
)
def test_every_value_comes_back_as_it_was(
    app: Database,
    floats: list[float | None],
    integers: list[int | None],
    booleans: list[bool | None],
    texts: list[str | None],
) -> None:
    assert read(app, floats, integers, booleans, texts) == {
        "floats": floats,
        "integers": integers,
        "booleans": booleans,
        "texts": texts,
    }


def test_text_in_a_literal_is_never_read_as_sql(database: "FreshDatabase") -> None:
    # The literal is a value, whatever stands in it: no part of it is ever read as SQL.
    hostile = "'); DROP TABLE evals.runs; --"
    assert database.look_up("SELECT %(texts)s::text[]", {"texts": write_texts([hostile])}) == [hostile]


def read(app: Database, floats: Any, integers: Any, booleans: Any, texts: Any) -> dict[str, Any]:
    params = {
        "floats": write_numbers(floats),
        "integers": write_numbers(integers),
        "booleans": write_booleans(booleans),
        "texts": write_texts(texts),
    }
    row = app.fetch_one(READ, params)
    assert row is not None
    return dict(row)
