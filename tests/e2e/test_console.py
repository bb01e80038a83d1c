"""The console in a browser: what people see and do in it, and what it must never do."""

import base64
import hashlib
import itertools
import json
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from evalward_local.showcase import Showcase
from evalward_local.stack_client import StackClient
from evalward_local.webhook_receiver import WebhookReceiver
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect, sync_playwright

PATIENCE_MS = 30_000
PHONE = {"width": 390, "height": 844}
ROWS = [{"id": f"r{number}", "input": "question", "output": "yes", "reference": "yes"} for number in range(20)]
_numbers = itertools.count(1)

pytestmark = pytest.mark.chromium


@pytest.fixture(scope="module")
def client(calling_client: StackClient) -> StackClient:
    return calling_client


@pytest.fixture
def project(client: StackClient) -> str:
    name = f"watched-{next(_numbers)}"
    client.expect(201, "POST", "/v1/projects", json={"id": name})
    client.upload(name, "answers", ROWS)
    return name


@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed"
    # Chromium's own sandbox refuses to run as root, as CI does; it is shown nothing but this console.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


type Open = Callable[..., Page]


@pytest.fixture
def open_console(client: StackClient, browser: Browser) -> Iterator[Open]:
    """Return a function that opens the console in a browser of its own.

    At the end no script may have failed, nothing may have been refused by the page's policy, and nobody but this API
    may have been called.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []
    called: set[str] = set()

    def watch(page: Page) -> None:
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: faults.append(message.text) if _is_fault(message.text) else None)
        page.on("request", lambda request: called.add(request.url))

    def open_page(address: str = "#/", *, signed_in: bool = True, **options: Any) -> Page:
        context = browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        watch(page)
        page.goto(f"{client.stack.api_url}/console{address}")
        if signed_in:
            sign_in(page, client.stack.admin_key)
        return page

    expect.set_options(timeout=PATIENCE_MS)
    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
    assert [url for url in called if not url.startswith((client.stack.api_url, "blob:"))] == []


def _is_fault(message: str) -> bool:
    # Chromium notes every answer that is an error, also those that the console tells of in its own words.
    return not message.startswith("Failed to load resource")


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()


def visit(page: Page, *parts: str, query: str = "") -> None:
    """Go to a view of a project and wait until it is there."""
    page.evaluate("address => { location.hash = address; }", "#/projects/" + "/".join(parts) + query)
    page.locator("#main:not([aria-busy])").wait_for()


def test_console_is_one_small_page_that_may_call_this_api_only(client: StackClient) -> None:
    answer = client.request("GET", "/console", key="")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert len(answer.content) < 100_000
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for tag, source in (("script", policy["script-src"]), ("style", policy["style-src"])):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert source == f"'sha256-{digest}'"
    assert set(re.findall(r"https?://[^\"'\s)]+", answer.text)) == {"http://www.w3.org/2000/svg"}
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_key_is_asked_for_and_kept_nowhere(client: StackClient, open_console: Open) -> None:
    page = open_console(signed_in=False)
    sign_in(page, "ew_" + "0" * 16 + "_" + "0" * 64)
    expect(page.get_by_role("alert")).to_contain_text("That key is not valid")
    sign_in(page, client.stack.admin_key)
    expect(page.get_by_role("heading", name="Projects")).to_be_visible()
    kept = page.evaluate("() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, name])")
    assert client.stack.admin_key not in kept
    assert page.evaluate("() => localStorage.length + sessionStorage.length") == 0
    assert page.context.cookies() == []
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()


def test_key_that_is_deleted_meanwhile_is_asked_for_again(client: StackClient, open_console: Open) -> None:
    key = client.expect(201, "POST", "/v1/keys", json={"name": "short", "grants": [{"project": "*", "role": "viewer"}]})
    page = open_console(signed_in=False)
    sign_in(page, key["secret"])
    expect(page.get_by_role("heading", name="Projects")).to_be_visible()
    client.expect(204, "DELETE", f"/v1/keys/{key['id']}")
    page.evaluate("() => { location.hash = '#/projects/support/runs'; }")
    expect(page.get_by_role("alert")).to_contain_text("not valid any more")


def test_refusal_is_told_in_words(client: StackClient, open_console: Open) -> None:
    key = client.expect(
        201, "POST", "/v1/keys", json={"name": "viewer", "grants": [{"project": "*", "role": "viewer"}]}
    )
    page = open_console(signed_in=False)
    sign_in(page, key["secret"])
    page.get_by_role("button", name="New project").click()
    page.get_by_label("Id").fill("not-mine")
    page.get_by_role("button", name="Do it").click()
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text("projects.manage")
    expect(alert).to_contain_text("Request")


def test_wrong_rows_of_an_import_are_listed(open_console: Open, showcase: Showcase) -> None:
    page = open_console()
    visit(page, showcase.project, "datasets")
    page.get_by_role("link", name="tickets-of-may.jsonl").click()
    rows = page.get_by_role("table", name="Rows and fields that are wrong").get_by_role("row")
    expect(rows.filter(has_text="row 5").filter(has_text="/metadata")).to_contain_text("metadata is an object")


def test_fault_of_a_whole_file_is_told_as_one(
    client: StackClient, project: str, open_console: Open, tmp_path: Path
) -> None:
    page = open_console()
    (tmp_path / "empty.jsonl").write_text("\n")
    visit(page, project, "datasets")
    page.get_by_role("button", name="Publish a file").click()
    page.get_by_label("File, JSONL").set_input_files(tmp_path / "empty.jsonl")
    page.get_by_label("Name of the dataset").fill("empty")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_text("the file the file has no rows")

    imported = client.wait_for_import(project, client.drop(project, "empty.jsonl", b"\n"))
    visit(page, project, "imports", imported["id"])
    rows = page.get_by_role("table", name="Rows and fields that are wrong").get_by_role("row")
    expect(rows.filter(has_text="the file has no rows").get_by_role("cell").first).to_have_text("the file")


def test_run_is_watched_until_its_report_is_there(client: StackClient, project: str, open_console: Open) -> None:
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": True})
    order = {"name": "watched", "dataset": {"name": "answers"}, "evaluators": [{"name": "exact_match"}]}
    run = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)
    page = open_console()
    visit(page, project, "runs", run["id"])
    expect(page.get_by_role("progressbar", name="Records done")).to_have_attribute("aria-valuenow", "0")
    expect(page.get_by_text("waiting to begin")).to_be_visible()
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"paused": False})
    client.recover()
    client.wait_for_run(project, run["id"])
    metrics = page.get_by_role("table", name="Metrics with their means")
    expect(metrics.get_by_role("row").filter(has_text="exact_match")).to_contain_text("100 %")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("table", name="Results").get_by_role("row")).to_have_count(len(ROWS) + 1)
    with page.expect_download() as download:
        page.get_by_role("button", name="JUnit XML").click()
    assert "<testsuites" in Path(download.value.path()).read_text()


def test_numbers_of_a_report_carry_their_unit(open_console: Open, showcase: Showcase) -> None:
    page = open_console()
    visit(page, showcase.project, "runs", showcase.candidate)
    metrics = page.get_by_role("table", name="Metrics with their means")
    expect(metrics.get_by_role("row").filter(has_text="latency")).to_contain_text(re.compile(r"\d\sms.*\d\sms"))
    page.get_by_label("Evaluator").select_option("latency")
    results = page.get_by_role("table", name="Results").get_by_role("row")
    expect(results.nth(1)).to_contain_text(re.compile(r"\d\sms"))


def test_worst_records_are_quoted_and_shown_whole(client: StackClient, project: str, open_console: Open) -> None:
    hostile = "<img src=x onerror=\"document.title = 'gone'\"> \u202egnp.exe"
    client.upload(project, "questions", [{"id": "r0", "input": hostile, "output": "why? " * 100, "reference": "yes"}])
    order = {"name": "quoted", "dataset": {"name": "questions"}, "evaluators": [{"name": "exact_match"}]}
    run = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)
    client.wait_for_run(project, run["id"])
    page = open_console()
    visit(page, project, "runs", run["id"])
    worst = page.get_by_role("listitem").filter(has_text="r0")
    expect(worst.get_by_role("definition").nth(0)).to_have_text(hostile.replace("\u202e", "\ufffd"))
    expect(worst.get_by_role("definition").nth(1)).to_have_text(re.compile(r"^why\?.{295} …$", re.DOTALL))
    worst.get_by_text("Whole record").click()
    expect(worst.locator("pre")).to_contain_text(json.dumps("why? " * 100))
    expect(worst.locator("pre")).to_contain_text("\\u202e")
    assert page.title() != "gone"


def test_run_started_over_a_broken_line_is_started_once(client: StackClient, project: str, open_console: Open) -> None:
    page = open_console()
    visit(page, project, "runs")
    sent: list[Request] = []

    def lose_first_answer(route: Route) -> None:
        if route.request.method != "POST":
            route.continue_()
            return
        sent.append(route.request)
        if len(sent) > 1:
            route.continue_()
        else:
            route.fetch()
            route.abort("connectionreset")

    page.route("**/runs", lose_first_answer)
    page.get_by_role("button", name="Start a run").click()
    page.get_by_label("Name", exact=True).fill("once")
    page.get_by_role("checkbox", name="exact_match").check()
    page.get_by_label("Gate, if any").fill("exact_match mean >= 0.9")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("heading", name="once")).to_be_visible()
    keys = [request.headers["idempotency-key"] for request in sent]
    assert len(keys) == 2
    assert len(set(keys)) == 1
    runs = client.expect(200, "GET", f"/v1/projects/{project}/runs")["items"]
    assert [run["name"] for run in runs] == ["once"]
    assert client.wait_for_run(project, runs[0]["id"])["gates"][0]["passed"] is True


def test_wait_of_an_hour_is_told_and_not_waited_for(open_console: Open) -> None:
    page = open_console()
    full = {"status": 429, "code": "idempotency_capacity", "title": "Full", "detail": "Keys make room by and by."}

    def refuse(route: Route) -> None:
        if route.request.method == "POST":
            route.fulfill(status=429, headers={"retry-after": "3600"}, json=full)
        else:
            route.continue_()

    page.route("**/v1/projects", refuse)
    page.get_by_role("button", name="New project").click()
    page.get_by_label("Id").fill("one-more")
    page.get_by_role("button", name="Do it").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Keys make room by and by.")


def test_two_runs_are_compared_with_the_keyboard_alone(open_console: Open, showcase: Showcase) -> None:
    page = open_console()
    visit(page, showcase.project, "runs")
    # A new view takes the focus for its heading; a key pressed before that would go astray.
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_focused()
    for name in ("main branch", "shorter prompt"):
        box = page.get_by_role("checkbox", name=re.compile(name))
        box.focus()
        page.keyboard.press("Space")
        expect(box).to_be_checked()
    page.get_by_role("button", name="Compare").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Comparison")).to_be_focused()
    row = page.get_by_role("table", name="What changed").get_by_role("row").filter(has_text="token_f1")
    expect(row).to_contain_text("worse")
    assert f"baseline={showcase.baseline}&candidate={showcase.candidate}" in page.url


def test_skip_link_is_first_and_leads_to_the_content(open_console: Open, showcase: Showcase) -> None:
    page = open_console()
    visit(page, showcase.project, "runs")
    address = page.url
    page.evaluate("() => { document.body.tabIndex = -1; document.body.focus(); }")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert page.url == address


def test_days_of_a_source_are_a_strip_and_a_window_can_be_given_up(
    client: StackClient, open_console: Open, showcase: Showcase
) -> None:
    page = open_console()
    visit(page, showcase.project, "sources", showcase.source)
    days = page.locator("button.day")
    assert days.count() >= 20
    failing = page.get_by_role("button", name=re.compile("attempts fail"))
    expect(failing).to_have_count(1)
    failing.click()
    rows = page.get_by_role("table", name="Windows").get_by_role("row")
    expect(rows.filter(has_text="a trace has a span without end")).to_have_count(1)
    expect(rows.filter(has_text="Nov 9")).to_have_count(0)
    page.get_by_role("button", name="Skip", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Skip").click()
    expect(page.get_by_role("button", name=re.compile("attempts fail"))).to_have_count(0)
    path = f"/v1/projects/{showcase.project}/sources/{showcase.source}/windows?state=working"
    assert client.expect(200, "GET", path)["items"] == []


def test_webhook_is_pinged_and_a_delivery_sent_again(
    open_console: Open, showcase: Showcase, receiver: WebhookReceiver
) -> None:
    receiver.wait_for(3)
    page = open_console()
    visit(page, showcase.project, "webhooks", showcase.webhook)
    page.get_by_role("button", name="Send a ping").click()
    expect(page.get_by_text("Ping delivered: 204.")).to_be_visible()
    before = len(receiver.received)
    page.get_by_role("row").filter(has_text="run.gate_failed").get_by_role("button", name="Send again").click()
    expect(page.get_by_text("Queued to be sent again")).to_be_visible()
    assert json.loads(receiver.wait_for(before + 1)[-1].body)["type"] == "run.gate_failed"


def test_what_others_wrote_is_shown_and_never_run(client: StackClient, project: str, open_console: Open) -> None:
    hostile = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>\u202egnp.exe"
    client.expect(200, "PATCH", f"/v1/projects/{project}", json={"description": hostile})
    client.upload(project, "hostile", [{"id": hostile, "input": hostile, "output": hostile}])
    order = {"name": hostile, "dataset": {"name": "hostile"}, "evaluators": [{"name": "exact_match"}]}
    run = client.expect(202, "POST", f"/v1/projects/{project}/runs", json=order)
    client.wait_for_run(project, run["id"])
    page = open_console()
    expect(page.get_by_text(hostile)).to_be_visible()
    visit(page, project, "datasets", "hostile%401")
    expect(page.get_by_role("table", name="Records").get_by_text(hostile).first).to_be_visible()
    visit(page, project, "runs", run["id"])
    expect(page.get_by_role("heading", name="onerror")).to_be_visible()
    assert page.locator("main img, main script").count() == 0
    assert page.title() != "taken"


VIEWS = {
    "projects": "#/",
    "runs": "{project}/runs",
    "run": "{project}/runs/{candidate}",
    "comparison": "{project}/compare?baseline={baseline}&candidate={candidate}",
    "datasets": "{project}/datasets",
    "dataset": "{project}/datasets/support-answers%402",
    "import": "{project}/imports/{failed_import}",
    "sources": "{project}/sources",
    "source": "{project}/sources/{source}",
    "webhooks": "{project}/webhooks",
    "webhook": "{project}/webhooks/{webhook}",
    "failures": "{project}/failures",
    "doctor": "#/doctor",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [{"width": 1280, "height": 900}, PHONE], ids=["desktop", "phone"])
def test_every_view_is_accessible_and_fits(
    open_console: Open, showcase: Showcase, viewport: dict[str, int], scheme: str
) -> None:
    page = open_console(viewport=viewport, color_scheme=scheme)
    expect(page.get_by_role("heading", name="Projects")).to_be_visible()
    found: dict[str, Any] = {}
    for name, address in VIEWS.items():
        place = address.format(**vars_of(showcase))
        page.evaluate("address => { location.hash = address; }", place if place[0] == "#" else f"#/projects/{place}")
        page.locator("#main:not([aria-busy]) h1").wait_for()
        violations = Axe().run(page).response["violations"]
        if rules := [f"{one['id']} ({one['impact']})" for one in violations]:
            found[name] = rules
        if page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
            found[f"{name}, wider than the screen"] = True
    page.get_by_role("link", name="Projects").click()
    page.get_by_role("button", name="New project").click()
    if rules := [one["id"] for one in Axe().run(page).response["violations"]]:
        found["dialog"] = rules
    assert found == {}


def vars_of(showcase: Showcase) -> dict[str, str]:
    return {name: str(getattr(showcase, name)) for name in Showcase.__dataclass_fields__}
