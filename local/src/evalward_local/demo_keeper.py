"""The demonstration's sweep: the keeper deletes what its budget leaves no room for; the doctor as a table."""

from collections.abc import Callable
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from evalward_local.demo_source import SourceStoryError
from evalward_local.stack_client import StackClient

KEEPER_PARAMETERS = {"JobEngineRetention": '{"start_delay": 0, "maximum_terminal_rows_per_scope": 1}'}
"""Of the demonstration's stack: a sweep that need not wait, and a budget that two ended runs exceed."""
_PATH = "/doctor/jobengine-web/checks"
_RETENTION = "doctor.jobengine.retention.terminal-budgets"


class KeeperStoryError(SourceStoryError):
    """A step did not do what it says; the message is what was seen instead."""


def tell_sweep(client: StackClient, say: Callable[[str], None]) -> None:
    """Fire the keeper's pulse twice and tell what the first one swept.

    Raises
    ------
    KeeperStoryError
        Something was not as it should be.
    """
    before = _ask(client)[_RETENTION]
    if before["status"] != "unhealthy":
        raise KeeperStoryError(f"two ended runs and a budget of one row: {before}")
    say("this stack's budget is one ended row in a scope, for a sweep to see; an installation's is 10,000")
    say(f"the doctor before: {before['summary']}")
    swept = client.fire("KeeperPulse")
    if swept["swept"] != 1 or swept["failed"] or swept["remaining"] or swept["deleted"] < 2:
        raise KeeperStoryError(f"the keeper answered {swept}")
    say(
        f"KeeperPulse: {swept['deleted']} ended rows of {swept['scopes']} scopes deleted, {swept['remaining']} left "
        "that have expired; the runs, their results and reports stay"
    )
    again = client.fire("KeeperPulse")
    if again["swept"] != 0:
        raise KeeperStoryError(f"a second pulse swept again: {again}")
    say("the same pulse again: nothing is due, the receipt in the database says so")


def tell_health(client: StackClient, say: Callable[[str], None]) -> Table:
    """Let the sizes be measured, ask the doctor and return its checks.

    Raises
    ------
    KeeperStoryError
        A check of JobEngine is not healthy.
    """
    measured = client.fire("CapacityProbePulse")
    # The stack's own pulse may have been first.
    sizes = f", {measured['database_bytes']:,} bytes in all" if measured["measured"] else ": the receipt is fresh"
    say(f"CapacityProbePulse: {measured['measured']} tables measured{sizes}")
    checks = _ask(client)
    say(f"GET {_PATH}:")
    table = Table(box=SIMPLE, pad_edge=False)
    for title in ("   check", "status", "summary"):
        table.add_column(title)
    for check in checks.values():
        colour = "green" if check["status"] == "healthy" else "red"
        table.add_row(f"   {check['id']}", f"[{colour}]{check['status']}[/{colour}]", check["summary"])
    ill = [check for check in checks.values() if "jobengine" in check["id"] and check["status"] != "healthy"]
    if ill:
        raise KeeperStoryError(f"not healthy: {ill}")
    return table


def _ask(client: StackClient) -> dict[str, Any]:
    checks = client.expect(200, "GET", _PATH)["checks"]
    return {check["id"]: check for check in checks}
