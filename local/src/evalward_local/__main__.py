"""`python -m evalward_local`."""

from evalward_local.command_line import app

app()
