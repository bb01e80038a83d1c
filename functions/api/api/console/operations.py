"""The declaration of the console."""

from coordination.environment import Environment
from coordination.http.operation import Answer, PublicPage

from api.console.page import read_page


def _console(_environment: Environment) -> Answer:
    page, headers = read_page()
    return Answer(200, page, headers, content_type="text/html; charset=utf-8")


PAGES = (
    PublicPage(
        id="console",
        path="/console",
        summary="The console, for people; it asks for a key.",
        respond=_console,
        content_type="text/html",
    ),
)
