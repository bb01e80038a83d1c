"""Workers: the execution environments of the functions that read a queue, as the database hears of them."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from uuid import UUID, uuid4

from aws_lambda_powertools import Logger

from coordination.database import Database
from coordination.errors import ProblemError
from coordination.queries import load_queries

logger = Logger(child=True)

_QUERIES = load_queries("jobengine")


@cache
def worker_id() -> UUID:
    """Return the id of this execution environment: random, made at its first use."""
    return uuid4()


@contextmanager
def heartbeat(database: Database, function_name: str) -> Generator[None]:
    """Note that this environment is busy while the body runs, and idle after it.

    An environment runs one invocation at a time. It dies without notice: the keeper stops what has been silent. A
    heartbeat that cannot be noted never fails the work. Two statements of their own; lock: the worker's row.
    """
    _note(database, "begin_invocation", function_name)
    try:
        yield
    finally:
        _note(database, "end_invocation", function_name)


def _note(database: Database, query: str, function_name: str) -> None:
    try:
        database.fetch_all(_QUERIES[query], {"id": worker_id(), "function": function_name})
    except ProblemError as error:
        logger.warning("heartbeat not noted", extra={"code": error.code})
