"""`evalward webhooks`."""

from typing import Annotated

import typer

from evalward.command_line.exit_codes import ExitCode
from evalward.command_line.options import AsJson, IdempotencyKey, Limit, Project, Yes
from evalward.command_line.output import show_done, show_fields, show_list
from evalward.command_line.secret import show_secret
from evalward.command_line.session import confirm, open_session, take

app = typer.Typer(no_args_is_help=True)

_Webhook = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its id.")]


@app.command("create")
def create_webhook(
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="A name of yours.")],
    url: Annotated[str, typer.Option(help="A public https address.")],
    event: Annotated[list[str], typer.Option("--event", help="run.finished, run.gate_failed, … Repeatable.")],
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Create a webhook. Its secret is printed once, alone on the standard output."""
    del as_json
    body = {"id": webhook, "url": url, "events": event}
    with open_session() as session:
        made = session.client.webhooks.create(session.project(project), body, idempotency_key=idempotency_key)
    show_secret(made, "webhook")


@app.command("list")
def list_webhooks(project: Project = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List webhooks, newest first."""
    del as_json
    with open_session() as session:
        items, is_cut = take(session.client.webhooks.each(session.project(project)), limit)
    show_list(items, {name: name for name in ("id", "url", "events", "created_at")}, is_cut=is_cut)


@app.command("show")
def show_webhook(webhook: _Webhook, project: Project = None, as_json: AsJson = False) -> None:
    """Read a webhook, without its secret."""
    del as_json
    with open_session() as session:
        show_fields(session.client.webhooks.get(session.project(project), webhook))


@app.command("test")
def ping_webhook(
    webhook: _Webhook, project: Project = None, idempotency_key: IdempotencyKey = None, as_json: AsJson = False
) -> None:
    """Send a ping now, once, and tell what became of it; exit with 1 when it was not delivered."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        delivery = session.client.webhooks.test(where, webhook, idempotency_key=idempotency_key)
    show_fields(delivery)
    if delivery["state"] != "delivered":
        raise typer.Exit(ExitCode.REFUSED)


@app.command("deliveries")
def list_deliveries(
    webhook: _Webhook,
    state: Annotated[str | None, typer.Option(help="queued, delivered or failed.")] = None,
    project: Project = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first."""
    del as_json
    with open_session() as session:
        deliveries = session.client.webhooks.each_delivery(session.project(project), webhook, state=state)
        items, is_cut = take(deliveries, limit)
    names = ("id", "event", "state", "attempts", "response_status", "next_attempt_at", "error", "created_at")
    show_list(items, {name: name for name in names}, is_cut=is_cut)


@app.command("redeliver")
def redeliver(
    delivery: Annotated[str, typer.Argument(help="Its id.")],
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Send a delivery again, under the same id."""
    del as_json
    with open_session() as session:
        where = session.project(project)
        show_fields(session.client.webhooks.redeliver(where, delivery, idempotency_key=idempotency_key))


@app.command("delete")
def delete_webhook(
    webhook: _Webhook,
    yes: Yes = False,
    project: Project = None,
    idempotency_key: IdempotencyKey = None,
    as_json: AsJson = False,
) -> None:
    """Delete a webhook with its deliveries."""
    del as_json
    confirm(f"Delete the webhook {webhook} with its deliveries?", is_agreed=yes)
    with open_session() as session:
        session.client.webhooks.delete(session.project(project), webhook, idempotency_key=idempotency_key)
    show_done("deleted", webhook)
