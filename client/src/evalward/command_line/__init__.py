"""The command `evalward`: one module a group of commands, each command one call of the client."""
