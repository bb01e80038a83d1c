"""All projects, for passes that work tenant by tenant."""

from collections.abc import Iterator

from coordination.clock import Deadline
from coordination.database import Database
from coordination.queries import load_queries
from psycopg.rows import DictRow

_PAGE_SIZE = 200


def iterate_projects(database: Database, deadline: Deadline, spare_seconds: float) -> Iterator[DictRow]:
    """Yield the rows of all projects by id, until less than `spare_seconds` of the invocation are left."""
    after: str | None = None
    while True:
        page = database.fetch_all(
            load_queries("projects")["list_projects"], {"visible": None, "after": after, "limit": _PAGE_SIZE}
        )
        for project in page:
            if deadline.remaining_seconds() < spare_seconds:
                return
            yield project
        if len(page) < _PAGE_SIZE:
            return
        after = page[-1]["id"]
