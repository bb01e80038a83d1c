"""Public pages: health, the OpenAPI document, and a page to read it."""

from importlib.resources import files

from coordination.environment import Environment
from coordination.http.operation import Answer, PublicPage

from api.reference.health import Health, read_health


def _health(environment: Environment) -> Answer:
    health = read_health(environment.database)
    return Answer(200 if health.status == "ok" else 503, health)


def _openapi(_environment: Environment) -> Answer:
    return Answer(200, files("api.reference").joinpath("openapi.json").read_bytes())


def _docs(_environment: Environment) -> Answer:
    return Answer(
        200, files("api.reference").joinpath("docs.html").read_bytes(), content_type="text/html; charset=utf-8"
    )


PAGES = (
    PublicPage(
        id="healthz",
        path="/healthz",
        summary="Tell the version, whether the database answers, and the limits.",
        respond=_health,
        response=Health,
    ),
    PublicPage(id="openapi", path="/v1/openapi.json", summary="The OpenAPI document.", respond=_openapi),
    PublicPage(
        id="docs",
        path="/docs",
        summary="The documentation of the API, for people.",
        respond=_docs,
        content_type="text/html",
    ),
)
