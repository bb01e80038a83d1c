"""The pictures of the documents: the console and a report, photographed in Chromium on a stack with a sample in it."""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

from evalward_local.running_stack import running_stack
from evalward_local.showcase import Showcase, fill_project
from evalward_local.stack_client import StackClient
from evalward_local.webhook_receiver import WebhookReceiver

_DESKTOP = (1180, 760)
_PHONE = (390, 780)


def take_pictures(folder: Path) -> None:
    """Write the PNG files into a folder.

    Raises
    ------
    FileNotFoundError
        Chromium is not installed.
    """
    program = shutil.which("chromium")
    if program is None:
        raise FileNotFoundError("chromium is not installed: apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state, WebhookReceiver() as receiver:
        hosts = {"OutgoingAllowedHosts": json.dumps({"*": [receiver.host]})}
        with running_stack(Path(state), parameters=hosts) as stack, StackClient(stack) as client:
            showcase = fill_project(client, "support", receiver.url)
            with sync_playwright() as playwright:
                # Chromium's own sandbox refuses to run as root; it is shown nothing but this stack.
                browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
                _take(browser, client, showcase, folder)
                browser.close()


def _take(browser: Browser, client: StackClient, showcase: Showcase, folder: Path) -> None:
    project = f"#/projects/{showcase.project}"
    kinds: list[tuple[str, tuple[int, int], Literal["light", "dark"]]] = [
        ("desktop", _DESKTOP, "light"),
        ("phone", _PHONE, "dark"),
    ]
    for name, size, scheme in kinds:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page.goto(f"{client.stack.api_url}/console")
        page.get_by_label("API key").fill(client.stack.admin_key)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("heading", name="Projects").wait_for()
        for view, address in (
            ("run", f"{project}/runs/{showcase.candidate}"),
            ("source", f"{project}/sources/{showcase.source}"),
            ("comparison", f"{project}/compare?baseline={showcase.baseline}&candidate={showcase.candidate}"),
        ):
            _visit(page, address)
            if (view, name) != ("comparison", "phone"):
                page.screenshot(path=folder / f"console-{view}-{name}.png")
        report = client.request(
            "GET",
            f"/v1/projects/{showcase.project}/runs/{showcase.candidate}/report"
            f"?format=html&excerpts=true&baseline={showcase.baseline}",
        ).text
        # A page of its own: the console's policy would forbid the report its style.
        paper = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        paper.set_content(report)
        paper.screenshot(path=folder / f"report-{name}.png")
        paper.close()
        page.close()


def _visit(page: Page, address: str) -> None:
    page.evaluate("address => { location.hash = address; }", address)
    page.locator("#main:not([aria-busy]) h1").wait_for()


def main() -> None:
    """Take the pictures for `docs/pictures` below the current folder."""
    folder = Path("docs/pictures")
    take_pictures(folder)
    for path in sorted(folder.glob("*.png")):
        sys.stdout.write(f"{path} {path.stat().st_size // 1000} kB\n")


if __name__ == "__main__":
    main()
