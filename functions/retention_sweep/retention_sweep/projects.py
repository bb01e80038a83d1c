"""Projects, one after the other while there is time."""

from collections.abc import Iterator

from coordination.clock import Deadline
from coordination.database import Database
from coordination.projects import iterate_projects
from psycopg.rows import DictRow


def iterate_projects_until(database: Database, deadline: Deadline, spare_seconds: float) -> Iterator[DictRow]:
    """Yield the rows of all projects by id, until less than `spare_seconds` of the invocation are left."""
    for project in iterate_projects(database):
        if deadline.remaining_seconds() < spare_seconds:
            return
        yield project
