import json
import string
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from coordination.cron import CronError, CronSets, Ticks, parse_cron
from hypothesis import given
from hypothesis import strategies as st

CASES: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[2] / "cases" / "cron.json").read_text("utf-8")
)

MEANINGS = {
    "*/45 * * * *": ("minutes", (0, 45)),
    "*/59 * * * *": ("minutes", (0, 59)),
    "*/60 * * * *": ("minutes", (0,)),
    "10-20/5 * * * *": ("minutes", (10, 15, 20)),
    "5,5,3 * * * *": ("minutes", (3, 5)),
    "05 * * * *": ("minutes", (5,)),
    "0 */7 * * *": ("hours", (0, 7, 14, 21)),
    "0 0 */10 * *": ("days", (1, 11, 21, 31)),
    "0 0 * jan,Dec *": ("months", (1, 12)),
    "0 0 * FEB-APR *": ("months", (2, 3, 4)),
    "0 0 * * 5-7": ("weekdays", (0, 5, 6)),
    "0 0 * * 0,7": ("weekdays", (0,)),
    "0 0 * * 0-7": ("weekdays", (0, 1, 2, 3, 4, 5, 6)),
    "0 0 * * mon-FRI/2": ("weekdays", (1, 3, 5)),
    "0 0 * * */2": ("weekdays", (0, 2, 4, 6)),
}
# Days of the month and weekdays at once: three answers from four libraries.
BOTH_DAYS = (
    *("0 0 */2 * 1", "0 0 1 * 1", "0 0 1-15 * MON", "0 0 1 * */2", "53 * */11 * 1-5", "48 14 31 6 0", "0 0 13 * FRI"),
    *("0 0 */2 * */2", "53 * */11 * */2", "0 0 1,15 * SUN", "0 0 31 * 6-7", "0 0 2-31 * 1-6"),
)
REFUSED = {
    "59/15 * * * *": "59-59/15",
    "0 1 0/10 * *": "0 is not between 1 and 31",
    "* * * 0 *": "between 1 and 12",
    "0 0 * * 1-1": "one value",
    "0 0 * * SAT-SUN": "backwards",
    "*/100000000 * * * *": "larger than the field",
    "*/61 * * * *": "larger than the field",
    "0 */25 * * *": "24 values",
    "0 0 * * */8": "7 values",
    "1, * * * *": "comma",
    ",1 * * * *": "comma",
    "*/ * * * *": "no step",
    "*/x * * * *": "no step",
    "*/2/2 * * * *": "no step",
    "1-2-3 * * * *": "1-2-3",
    "1- * * * *": "1-",
    "** * * * *": "**",
    "*1 * * * *": "*1",
    "1.5 * * * *": "1.5",
    "+1 * * * *": "+1",
    "1 * * * MONDAY": "MONDAY",
    "1 * * JANUARY *": "JANUARY",
    "1 * * MON *": "MON",
    "² * * * *": "²",
    "٣ * * * *": "minute",
    "0 0\t* * *": "five",
    "0 0 31 4,6,9,11 *": "never",
    "0 0 30,31 2 *": "never",
    "0 0 * * *\r": "newline",
    "0 0 * * *\u2028": "newline",
    "9" * 5000: "characters",
    "0,0," * 60 + "0 * * * *": "characters",
    "123 * * * *": "123 is not between",
    "9999999999999999999999999 * * * *": "is not between",
}


@pytest.mark.parametrize("case", CASES["accepted"], ids=lambda case: case["cron"])
def test_accepted_case_ticks_when_it_should(case: dict[str, Any]) -> None:
    ticks, at = Ticks(parse_cron(case["cron"])), datetime.fromisoformat(case["after"])
    for expected in case["next"]:
        found = ticks.next_after(at)
        assert found == datetime.fromisoformat(expected)
        assert found is not None
        at = found


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: repr(case["cron"]))
def test_refused_case_says_why(case: dict[str, Any]) -> None:
    with pytest.raises(CronError) as refusal:
        parse_cron(case["cron"])
    assert case["message_contains"] in str(refusal.value)


@pytest.mark.parametrize(("expression", "word"), REFUSED.items(), ids=range(len(REFUSED)))
def test_refused_expression_says_why(expression: str, word: str) -> None:
    with pytest.raises(CronError) as refusal:
        parse_cron(expression)
    assert word in str(refusal.value)


@pytest.mark.parametrize("expression", BOTH_DAYS)
def test_days_and_weekdays_at_once_are_refused(expression: str) -> None:
    with pytest.raises(CronError, match="both restricted"):
        parse_cron(expression)


@pytest.mark.parametrize("expression", ["0 0 1 * */1", "0 0 */1 * 1", "0 0 1 * 0-6", "0 0 1-31 * MON"])
def test_full_set_is_no_restriction_however_it_is_written(expression: str) -> None:
    assert parse_cron(expression)


@pytest.mark.parametrize(("expression", "meaning"), MEANINGS.items())
def test_expression_means_its_sets(expression: str, meaning: tuple[str, tuple[int, ...]]) -> None:
    field, values = meaning
    assert getattr(parse_cron(expression), field) == values


def test_all_pairs_of_day_and_month_are_decided() -> None:
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    for month in range(1, 13):
        for day in range(1, 32):
            expression = f"0 0 {day} {month} *"
            if day > longest.get(month, 31):
                with pytest.raises(CronError, match="never fires"):
                    parse_cron(expression)
            else:
                assert parse_cron(expression).days == (day,)


def test_sets_survive_being_stored() -> None:
    for expression in MEANINGS:
        sets = parse_cron(expression)
        assert CronSets.from_json(json.loads(json.dumps(sets.to_json()))) == sets
        assert parse_cron(sets.to_expression()) == sets


@given(
    st.one_of(
        st.text(),
        st.text(alphabet=string.digits + "*/,-? LWH#RMON@\n", max_size=40),
        st.lists(st.text(alphabet="0123456789*/,-MONJAN", min_size=1, max_size=6), min_size=5, max_size=5).map(
            " ".join
        ),
        st.none() | st.integers() | st.binary() | st.floats() | st.lists(st.text()),
    )
)
def test_only_our_error_leaves_the_parser(expression: Any) -> None:
    try:
        sets = parse_cron(expression)
    except CronError:
        return
    assert parse_cron(sets.to_expression()) == sets
