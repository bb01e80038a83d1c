"""All projects, for passes that work tenant by tenant."""

from collections.abc import Iterator

from psycopg.rows import DictRow

from coordination.database import Database
from coordination.queries import load_queries

_QUERIES = load_queries("projects")
_PAGE_SIZE = 200


def iterate_projects(database: Database) -> Iterator[DictRow]:
    """Yield the rows of all projects by id; one statement a page, no lock."""
    after: str | None = None
    while True:
        page = database.fetch_all(_QUERIES["list_projects"], {"visible": None, "after": after, "limit": _PAGE_SIZE})
        yield from page
        if len(page) < _PAGE_SIZE:
            return
        after = page[-1]["id"]
