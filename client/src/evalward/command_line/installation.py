"""Commands about the installation as a whole."""

from typing import Annotated

import typer

from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.options import AsJson, Limit
from evalward.command_line.output import as_text, print_table, say, show, show_list
from evalward.command_line.session import open_session, take


def list_evaluators(as_json: AsJson = False) -> None:
    """List the evaluators; --json has the schema of their parameters."""
    del as_json
    with open_session() as session:
        items = session.client.evaluators()["items"]
    show_list(items, {"name": "name", "kind": "kind", "what it says": lambda item: item.get("description") or ""})


def list_audit_events(
    project: Annotated[str | None, typer.Option("--project", "-p", help="Only of this project.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List what was written, denied and reconciled, newest first."""
    del as_json
    with open_session() as session:
        items, is_cut = take(session.client.each_audit_event(project=project), limit)
    names = ("at", "principal", "operation", "outcome", "project", "request_id")
    show_list(items, {name: name for name in names}, is_cut=is_cut)


def run_doctor(as_json: AsJson = False) -> None:
    """Check the installation: queues of work, budgets, retention, cursors. Exits with 4 when something is unhealthy."""
    del as_json
    with open_session() as session:
        answer = session.client.doctor()
    checks = answer["checks"]
    unhealthy = [check for check in checks if check["status"] != "healthy"]

    def summary() -> None:
        print_table(
            ["check", "status", "what it found"],
            [[check["id"], check["status"], check["summary"]] for check in checks],
        )
        for check in unhealthy:
            say(f"{check['id']}: {check['remediation']}")
            figures = {name: value for name, value in check["evidence"].items() if not isinstance(value, dict | list)}
            say(f"  {', '.join(f'{name} {as_text(value)}' for name, value in figures.items() if value is not None)}")
        if unhealthy:
            say("`evalward doctor --json` has all the evidence.")

    show(answer, summary)
    if unhealthy:
        raise typer.Exit(ExitCode.UNHEALTHY)
