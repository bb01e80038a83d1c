"""Reports as Markdown and JUnit XML, how they write numbers, and which form a caller gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from api.runs.models import Comparison, GateOutcome, Report
from api.runs.reports.junit_xml import render_junit
from api.runs.reports.markdown import render_markdown
from api.runs.reports.media_types import choose_format
from api.runs.reports.present_report import present_report
from api.runs.reports.wording import (
    UNKNOWN,
    write_change,
    write_condition,
    write_cost,
    write_duration,
    write_instant,
    write_number,
    write_share,
    write_verdict,
)
from records.gates import Gate

HOSTILE = "a|b <script> [x](javascript:1) *b* `c` @all\n# h https://e.example &amp; \\"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("*/*", "json"),
        ("", "json"),
        ("application/json", "json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8", "html"),
        ("text/markdown", "markdown"),
        ("text/markdown;q=0.5, text/html;q=0.4", "markdown"),
        ("application/xml", "junit"),
        ("TEXT/XML", "junit"),
        ("text/*", "html"),
        ("application/*", "json"),
        ("text/html;q=0, */*", "json"),
        ("application/json;q=0, */*;q=0.1", "html"),
        ("image/png", "json"),
        ("text/html;level=1", "html"),
        (";;;,,", "json"),
    ],
)
def test_form_follows_the_accept_header(accept: str, wanted: str) -> None:
    assert choose_format(accept) == wanted


def test_each_form_is_answered_with_its_type(make_report: Callable[..., Report]) -> None:
    report = make_report()
    types = {name: present_report(report, name).content_type for name in ("json", "html", "markdown", "junit")}
    assert types == {
        "json": "application/json",
        "html": "text/html; charset=utf-8",
        "markdown": "text/markdown; charset=utf-8",
        "junit": "application/xml",
    }
    assert all(present_report(report, name).headers["vary"] == "accept" for name in ("json", "html", "junit"))
    assert "default-src 'none'" in present_report(report, "html").headers["content-security-policy"]


def test_markdown_has_verdict_gates_metrics_worst_and_provenance(make_report: Callable[..., Report]) -> None:
    lines = render_markdown(make_report()).splitlines()
    assert lines[0] == "# ❌ Failed: nightly"
    assert [line for line in lines if line.startswith("#")][1:] == [
        "## Gates", "## Metrics", "## Worst records", "### exact", "### nightly", "## Made from",
    ]  # fmt: skip
    assert "| exact | 0.875 | 0.5291 to 0.9776 | 8 | 1 | 1 | 80.0 % |" in lines
    assert f"| latency | {UNKNOWN} | {UNKNOWN} | 0 | 10 | 0 | 0 % |" in lines
    assert "| nightly | mean ≤ 2 | 0.625 | ✅ passed |" in lines
    assert "| Input tokens | 0 |" in lines
    assert "| Evaluators | exact\\_match v1, latency v1, token\\_f1 v1 |" in lines


def test_markdown_says_what_moved(
    make_report: Callable[..., Report], make_comparison: Callable[..., Comparison]
) -> None:
    report = make_report().model_copy(update={"comparison": make_comparison()})
    lines = render_markdown(report).splitlines()
    assert [line for line in lines if line.startswith("#")][1:5] == [
        "## Gates", "## What moved", "### Regressions of nightly", "## Metrics",
    ]  # fmt: skip
    assert "| nightly | ❌ worse | -0.5 | -0.75 to -0.125 | 0.75 | 0.25 | 8 | 9 | 0 |" in lines
    assert "| exact | ✅ better | +0.5 | 0.125 to 0.75 | 0.25 | 0.75 | 8 | 0 | 4 |" in lines
    assert f"| latency | no pair | {UNKNOWN} | {UNKNOWN} | {UNKNOWN} | {UNKNOWN} | 0 | 0 | 0 |" in lines
    assert lines.count("| nightly-4 | 1 | 0 |") == 1
    assert "| nightly-5 | 1 | 0 |" not in lines


@pytest.mark.parametrize(
    ("better", "low", "high", "word"),
    [
        ("higher", 0.1, 0.2, "better"),
        ("higher", -0.2, -0.1, "worse"),
        ("lower", 0.1, 0.2, "worse"),
        ("lower", -0.2, -0.1, "better"),
        (None, 0.1, 0.2, "higher"),
        (None, -0.2, -0.1, "lower"),
        ("higher", -0.1, 0.1, "no clear change"),
        ("higher", 0.0, 0.1, "no clear change"),
        ("higher", None, None, "no clear change"),
    ],
)
def test_only_a_difference_beyond_chance_is_a_change(
    make_comparison: Callable[..., Comparison], better: str | None, low: float | None, high: float | None, word: str
) -> None:
    metric = make_comparison().metrics[0]
    assert write_change(metric.model_copy(update={"better": better, "ci_low": low, "ci_high": high})) == word


def test_markdown_takes_no_markup_from_users(make_report: Callable[..., Report]) -> None:
    text = render_markdown(make_report(HOSTILE))
    for line in text.splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line)) - 1
            assert cells in {2, 4, 7}
    for raw in ("<script>", "[x]", "*b*", "`c`", " @all", "https://"):
        assert not re.search(rf"(?<!\\){re.escape(raw)}", text)
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1


def test_markdown_quotes_worst_records_as_a_list(
    make_report: Callable[..., Report], quote: Callable[..., Report]
) -> None:
    lines = render_markdown(quote(make_report(), "How do I pay?\n\n- by card " + "x" * 300)).splitlines()
    at = lines.index("- **r2**, failed, score 0")
    assert lines[at + 1].startswith("  - Input: How do I pay? - by card xxx")
    assert lines[at + 1].endswith("xxx …")
    assert lines[at + 2].startswith("  - Output: How do I pay?")
    assert "  - Why: nightly" in lines


def test_markdown_takes_no_markup_from_quoted_texts(
    make_report: Callable[..., Report], quote: Callable[..., Report]
) -> None:
    text = render_markdown(quote(make_report(), HOSTILE + " $E=mc^2$\n| a |\n> q\n```\n"))
    for raw in ("<script>", "[x]", "*b*", "`", " @all", "https://", "$", "|"):
        worst = text[text.index("## Worst") : text.index("## Made")]
        assert not re.search(rf"(?<!\\){re.escape(raw)}", worst)
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1


def test_junit_has_a_suite_a_metric_and_a_case_a_gate(make_report: Callable[..., Report]) -> None:
    root = ElementTree.fromstring(render_junit(make_report()))
    assert (root.tag, root.attrib) == (
        "testsuites", {"name": "nightly", "tests": "4", "failures": "2", "errors": "0"},
    )  # fmt: skip
    suites = [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in root]
    assert suites == [("exact", "1", "1"), ("nightly", "2", "1"), ("latency", "1", "0")]
    failure = root.find("./testsuite[@name='nightly']/testcase[@name='lower bound ≥ 0.9']/failure")
    assert failure is not None
    assert failure.get("message") == "0 is less than 0.9"
    values = {one.get("name"): one.get("value") for one in root[0].iter("property")}
    assert (values["mean"], values["errors"], values["dataset_sha256"]) == ("0.875", "1", "ab" * 32)


@pytest.mark.parametrize("text", [HOSTILE, "\x01\x0b\ufffe", "]]>", "\"'<>&", "\U0001f600 ü"])
def test_junit_is_well_formed_whatever_users_named(make_report: Callable[..., Report], text: str) -> None:
    root = ElementTree.fromstring(render_junit(make_report(text)))
    assert len(root) == 3
    name = root[1].get("name")
    assert name is not None
    if text.isprintable():
        assert name == text


def test_junit_of_a_run_without_gates_passes_and_names_the_means(make_report: Callable[..., Report]) -> None:
    root = ElementTree.fromstring(render_junit(make_report(gates=())))
    assert [case.get("name") for case in root.iter("testcase")] == [
        "mean 0.875 (no gate)", "mean 0.625 (no gate)", f"mean {UNKNOWN} (no gate)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "written"),
    [(None, UNKNOWN), (0.0, "0"), (-0.0, "0"), (1.0, "1"), (0.61625, "0.6162"), (815.023, "815"),
     (1234567.0, "1,234,567"), (12345.6, "12,346"), (1e-7, "1e-07"), (1e149, "1e+149"), (-0.25, "-0.25")],
)  # fmt: skip
def test_numbers_have_four_significant_digits(number: float | None, written: str) -> None:
    assert write_number(number) == written


@pytest.mark.parametrize(
    ("share", "written"),
    [(None, UNKNOWN), (0.0, "0 %"), (1.0, "100 %"), (0.99999, "99.9 %"), (0.00001, "<0.1 %"), (0.5, "50.0 %")],
)
def test_shares_never_round_to_all_or_nothing(share: float | None, written: str) -> None:
    assert write_share(share) == written


@pytest.mark.parametrize(
    ("cost", "written"), [(None, UNKNOWN), (0.0, "$0"), (0.00123, "$0.00123"), (1234.5, "$1,234.50")]
)
def test_costs_are_dollars(cost: float | None, written: str) -> None:
    assert write_cost(cost) == written


@pytest.mark.parametrize(
    ("finished_at", "written"),
    [("2026-01-01T00:00:01.5Z", "0.5 s"), ("2026-01-01T00:02:04Z", "2 min 3 s"), ("2026-01-01T03:04:01Z", "3 h 4 min"),
     (None, UNKNOWN)],
)  # fmt: skip
def test_duration_is_from_start_to_end(
    make_report: Callable[..., Report], finished_at: str | None, written: str
) -> None:
    assert write_duration(make_report(finished_at=finished_at)) == written


def test_instants_are_written_to_the_second() -> None:
    assert write_instant("2026-01-31T12:00:00.123456Z") == "2026-01-31 12:00:00 UTC"
    assert write_instant(None) == UNKNOWN


def test_condition_names_what_is_held_to_what() -> None:
    def gate(**bounds: float | None) -> GateOutcome:
        outcome = {
            "metric": "m",
            "stat": "ci_high",
            "min": None,
            "max": None,
            "value": 0,
            "passed": True,
            "reason": None,
        }
        return GateOutcome.model_validate(outcome | bounds)

    assert write_condition(gate(min=0.0)) == "upper bound ≥ 0"
    assert write_condition(gate(max=0.5)) == "upper bound ≤ 0.5"
    assert write_condition(gate(min=0.0, max=0.5)) == "0 ≤ upper bound ≤ 0.5"


@pytest.mark.parametrize(
    ("gates", "verdict"),
    [
        (0, "No gate was set, so nothing could fail."),
        (1, "The gate failed: nightly (0.625 is less than 0.9)."),
        (5, f"5 of 5 gates failed: {', '.join(['nightly (0.625 is less than 0.9)'] * 3)}, and 2 more."),
    ],
)  # fmt: skip
def test_verdict_names_the_first_failures(make_report: Callable[..., Report], gates: int, verdict: str) -> None:
    assert write_verdict(make_report(gates=(Gate(metric="nightly", stat="mean", min=0.9),) * gates)) == verdict


def test_verdict_of_a_run_that_passed(make_report: Callable[..., Report]) -> None:
    passing = Gate(metric="nightly", stat="mean", min=0.5)
    assert write_verdict(make_report(gates=(passing,))) == "Its gate passed."
    assert write_verdict(make_report(gates=(passing, passing))) == "All 2 gates passed."
