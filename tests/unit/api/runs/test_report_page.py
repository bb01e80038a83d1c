"""The structure of the page, what it says without colour, and that nothing users wrote becomes markup."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from api.runs.models import Comparison, Distribution, MissingExcerpts, Report
from api.runs.reports.html_page import CONTENT_SECURITY_POLICY, render_html
from api.runs.reports.markdown import render_markdown
from api.runs.reports.markup import Html, element, join
from api.runs.reports.page_style import STYLE
from api.runs.reports.plots import Scale, draw_histogram
from api.runs.reports.wording import UNKNOWN
from records.gates import Gate

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;b&gt; ${7*7} {{7*7}} \u202egnp.exe"
VOID = {"meta", "br", "link", "img", "hr"}


class Page(HTMLParser):
    """The elements of a page in their order, checked for balance."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"an attribute stands twice in {tag}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, tag: str) -> list[str]:
        return [data for name, data in self.texts if name == tag]


def test_page_says_first_whether_the_run_passed_and_why_not(make_report: Callable[..., Report]) -> None:
    page = Page(render_html(make_report()))
    assert page.text("title")[0] == "Failed: nightly"
    words = [data for tag, data in page.texts if tag not in {"title", "style"}]
    assert words[:4] == ["evaluation report", "nightly", "✕", " Failed"]
    assert words[4].startswith("2 of 3 gates failed: nightly (0 is less than 0.9), exact (1 of the metric's rows")


def test_page_of_a_run_that_passed(make_report: Callable[..., Report]) -> None:
    text = render_html(make_report(gates=()))
    assert Page(text).text("title")[0] == "Passed: nightly"
    assert "No gate was set, so nothing could fail." in text
    assert ">Gates</h2>" not in text


def test_page_has_its_sections_in_the_order_of_interest(make_report: Callable[..., Report]) -> None:
    report = make_report(redactions={"email": 2})
    page = Page(render_html(report))
    assert page.text("h2") == ["Gates", "Metrics", "Scores", "Worst records", "Redactions", "Made from"]
    assert len(page.all("h1")) == 1
    assert page.text("dt")[-9:] == [
        "Project", "Run", "Dataset", "Dataset SHA-256", "Config SHA-256", "Evaluators", "Created", "Started",
        "Finished",
    ]  # fmt: skip


def test_page_says_what_moved_before_all_numbers(
    make_report: Callable[..., Report], make_comparison: Callable[..., Comparison]
) -> None:
    report = make_report().model_copy(update={"comparison": make_comparison()})
    text = render_html(report)
    page = Page(text)
    assert page.text("h2")[:3] == ["Gates", "What moved", "Metrics"]
    moved = text[text.index("What moved") : text.index(">Metrics</h2>")]
    assert "Since nightly, run 0198f5a0-0000-7000-8000-000000000001; records that both scored" in moved
    assert "The runs evaluated different data." in moved
    for shown in (" worse<", " better<", ">no pair<", ">-0.5<", ">-0.75 to -0.125<", ">+0.5<"):
        assert shown in moved
    assert [f"nightly-{at}" in moved for at in range(7)] == [True] * 5 + [False] * 2
    assert "and 4 more" in moved
    assert "is left out: only the candidate has it nightly." in moved


def test_nothing_that_users_named_in_a_comparison_becomes_markup(
    make_report: Callable[..., Report], make_comparison: Callable[..., Comparison]
) -> None:
    hostile = "<img src=x onerror=alert(1)>|[a](b)"
    report = make_report().model_copy(update={"comparison": make_comparison(hostile)})
    assert "<img" not in render_html(report)
    assert re.search(r"(?<!\\)(<img|\[a|\|\[)", render_markdown(report)) is None


def test_what_moved_without_regressions_has_no_empty_place_for_them(
    make_report: Callable[..., Report], make_comparison: Callable[..., Comparison]
) -> None:
    comparison = make_comparison()
    still = [metric.model_copy(update={"regressions": []}) for metric in comparison.metrics]
    moved = comparison.model_copy(update={"metrics": still})
    text = render_html(make_report().model_copy(update={"comparison": moved, "worst": []}))
    assert ">What moved</h2>" in text
    assert 'class="worst"' not in text


def test_worst_records_are_quoted_with_what_there_is(
    make_report: Callable[..., Report], quote: Callable[..., Report]
) -> None:
    plain = make_report()
    page = Page(render_html(quote(plain, "How do I pay? " * 30)))
    assert len(page.all("li")) == len(plain.worst) + len(Page(render_html(plain)).all("li"))
    quoted = [data for tag, data in page.texts if tag == "dd" and data.startswith("How do I pay?")]
    assert len(quoted) == 2 * len(plain.worst)
    assert page.text("dt").count("Input") == page.text("dt").count("Output") == 3
    assert "Reference" not in page.text("dt")
    assert page.text("span").count(" …") == 6
    assert [one["dir"] for one in page.all("dd") if "dir" in one] == ["auto"] * 6
    assert "Long texts are cut" in render_html(quote(plain, "a"))
    assert "Long texts are cut" not in render_html(plain)


def test_page_says_why_records_are_not_quoted(make_report: Callable[..., Report]) -> None:
    missing = MissingExcerpts(results=1, code="records_gone", detail="They <are> gone.")
    report = make_report().model_copy(update={"excerpts_missing": missing})
    assert "1 record is not quoted: They &lt;are&gt; gone." in render_html(report)
    assert "1 record is not quoted: They \\<are\\> gone." in render_markdown(report)


@pytest.mark.parametrize("text", [HOSTILE, "</dd></dl></li><script>1</script>", "<!--", "&#60;script&#62;"])
def test_no_quoted_text_becomes_markup(
    make_report: Callable[..., Report], quote: Callable[..., Report], text: str
) -> None:
    plain, hostile = Page(render_html(quote(make_report(), "a"))), Page(render_html(quote(make_report(), text)))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert text.replace("\u202e", "\ufffd") in [data for _, data in hostile.texts]


def test_numbers_carry_their_unit(
    make_report: Callable[..., Report], make_comparison: Callable[..., Comparison]
) -> None:
    slow = Gate(metric="exact", stat="mean", max=0.5)
    report = make_report(gates=(slow,))
    metrics = [metric.model_copy(update={"unit": "ms"}) for metric in report.metrics]
    comparison = make_comparison()
    moved = [metric.model_copy(update={"unit": "ms"}) for metric in comparison.metrics]
    report = report.model_copy(
        update={"metrics": metrics, "comparison": comparison.model_copy(update={"metrics": moved})}
    )
    page, text = render_html(report), render_markdown(report)
    for shown in ("0.875\xa0ms", "0.5291 to 0.9776\xa0ms", "mean ≤ 0.5\xa0ms", "-0.5\xa0ms", "0.25\xa0ms", "0\xa0ms"):
        assert shown in page
        assert shown in text


def test_zero_is_written_and_what_is_not_known_is_a_dash(make_report: Callable[..., Report]) -> None:
    page = Page(render_html(make_report()))
    facts = dict(zip(page.text("dt")[:6], page.text("dd")[:6], strict=True))
    assert facts == {
        "Records": "10", "Coverage": "40.0 %", "Duration": "2.5 s", "Input tokens": "0", "Output tokens": UNKNOWN,
        "Cost": "$0",
    }  # fmt: skip
    assert "None" not in render_html(make_report())
    assert "nan" not in render_html(make_report()).lower().replace("provenance", "")


@pytest.mark.parametrize("text", [HOSTILE, "</style><script>1</script>", "</title><svg/onload=1>", "<!--", "]]>"])
def test_nothing_that_users_named_becomes_markup(make_report: Callable[..., Report], text: str) -> None:
    plain, hostile = Page(render_html(make_report())), Page(render_html(make_report(text)))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    assert [sorted(attributes) for _, attributes in hostile.elements] == [
        sorted(attributes) for _, attributes in plain.elements
    ]
    assert text in [data for _, data in hostile.texts]


def test_page_loads_nothing_and_runs_nothing(make_report: Callable[..., Report]) -> None:
    page = Page(render_html(make_report(HOSTILE)))
    assert {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "object", "embed", "form"} == set()
    for _, attributes in page.elements:
        assert not {name for name in attributes if name.startswith("on") or name in {"src", "href", "style"}}
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert "default-src 'none'" in CONTENT_SECURITY_POLICY


def test_page_can_be_used_without_eyes_for_it(make_report: Callable[..., Report]) -> None:
    page = Page(render_html(make_report()))
    assert page.all("html")[0]["lang"] == "en"
    assert len(page.all("main")) == 1
    for svg in page.all("svg"):
        assert svg["role"] == "img"
        assert svg["aria-label"]
    assert len(page.all("caption")) == len(page.all("table"))
    for cell in page.all("th"):
        assert cell["scope"] == "col"
    for cell in page.all("td"):
        assert cell["data-label"]
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = "".join(digit * 2 for digit in digits) if len(digits) == 3 else digits
    channels = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1, 2])
@pytest.mark.parametrize(
    ("text", "ground"),
    [("ink", "ground"), ("ink", "card"), ("muted", "ground"), ("muted", "card"), ("good", "good-soft"),
     ("bad", "bad-soft"), ("bad", "card")],
)  # fmt: skip
def test_text_has_enough_contrast(theme: int, text: str, ground: str) -> None:
    """WCAG 2.2, success criterion 1.4.3."""
    colours = dict(re.findall(r"--([a-z-]+):(#[0-9a-f]+)", re.findall(r":root\{([^}]*)\}", STYLE)[theme]))
    lighter, darker = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def test_page_has_styles_for_the_dark_a_phone_and_paper() -> None:
    for condition in ("prefers-color-scheme:dark", "max-width:44rem", "@media print"):
        assert condition in STYLE


@pytest.mark.parametrize(
    ("child", "written"),
    [("<b>", "&lt;b&gt;"), (Html("<b></b>"), "<b></b>"), (None, ""), (["a", Html("<br>"), "&"], "a<br>&amp;")],
)
def test_only_html_stands_as_it_is(child: object, written: str) -> None:
    assert join((child,)) == written  # pyright: ignore[reportArgumentType]


def test_attributes_are_escaped_and_named() -> None:
    made = element("a", "x", class_='"', data_label="<", hidden=True, lang=None, inert=False, width=0.125)
    assert made == '<a class="&quot;" data-label="&lt;" hidden width="0.125">x</a>'
    assert element("br") == "<br>"


def test_scale_shows_interval_and_gates_and_never_collapses(make_report: Callable[..., Report]) -> None:
    report = make_report(gates=(Gate(metric="latency", stat="mean", max=250.0),))
    exact, _, latency = report.metrics
    assert (Scale.of_metric(exact, []).low, Scale.of_metric(exact, []).high) == (0.0, 1.0)
    scale = Scale.of_metric(latency, report.gates)
    assert scale.low == 0.0
    assert scale.high > 250.0
    assert Scale.of_metric(latency, []).place(1e300) == "100.00%"
    assert Scale(-1e308, 1e308).place(0.0) == "50.00%"


def test_histogram_of_equal_scores_is_one_bar() -> None:
    made = draw_histogram(Distribution(low=2.0, high=2.0, counts=[5]), 2.0)
    assert made.count("<rect") == 1
    assert "5 scores" in made


def test_a_single_score_among_many_still_shows() -> None:
    heights = re.findall(
        r'height="([\d.]+)" rx', draw_histogram(Distribution(low=0, high=1, counts=[100_000, 1, 0]), 0.1)
    )
    assert [float(height) for height in heights] == [92.0, 1.5, 0.0]
