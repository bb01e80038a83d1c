"""The command itself: its groups, and how its errors end."""

import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from evalward.command_line import (
    claims,
    datasets,
    evaluation,
    failures,
    imports,
    installation,
    keys,
    login,
    pending,
    projects,
    runs,
    sources,
    webhooks,
)
from evalward.command_line.examples import as_epilog
from evalward.command_line.exit_codes import of_error
from evalward.command_line.output import open_output
from evalward.command_line.problem_text import print_error
from evalward.errors import ConfigurationError, EvalwardError

app = typer.Typer(
    name="evalward",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Publish datasets, evaluate them, read the reports. Every write happens once: repeat what was interrupted.",
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(version("evalward-client"))
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("login")(login.log_in)
app.command("logout")(login.log_out)
app.command("whoami")(login.whoami)
app.add_typer(projects.app, name="projects", help="The tenants of the installation.")
app.add_typer(keys.app, name="keys", help="API keys.")
app.add_typer(datasets.app, name="datasets", help="Publish files, read what was published.")
app.add_typer(imports.app, name="imports", help="Files in the bucket on their way to a dataset.")
app.add_typer(runs.app, name="runs", help="Evaluate datasets, read reports, compare.")
app.command("evaluate")(evaluation.evaluate_records)
app.add_typer(sources.app, name="sources", help="Scheduled pulls of traces, and their windows.")
app.add_typer(webhooks.app, name="webhooks", help="Endpoints that are told what happened.")
app.add_typer(failures.app, name="failures", help="What went wrong, grouped by cause.")
app.add_typer(claims.app, name="claims", help="Keyed writes without an outcome, on the service.")
app.add_typer(pending.app, name="pending", help="Interrupted writes whose keys are kept on this machine.")
app.command("doctor")(installation.run_doctor)
app.command("evaluators")(installation.list_evaluators)
app.command("audit")(installation.list_audit_events)


def _show_examples() -> None:
    groups = [("", app), *((f"{group.name} ", group.typer_instance) for group in app.registered_groups)]
    for beginning, group in groups:
        for command in group.registered_commands if group else []:
            command.epilog = as_epilog(f"{beginning}{command.name}")


_show_examples()


def main() -> None:
    """Run the command of the command line and exit with its status."""
    open_output()
    try:
        try:
            app(prog_name="evalward")
        finally:
            # What was printed comes before what went wrong.
            sys.stdout.flush()
    except UnicodeEncodeError:
        _fail(ConfigurationError("A text holds bytes that are no UTF-8, or the locale is not: try LC_ALL=C.UTF-8."))
    except EvalwardError as error:
        _fail(error)


def _fail(error: EvalwardError) -> NoReturn:
    print_error(error)
    sys.exit(of_error(error))
