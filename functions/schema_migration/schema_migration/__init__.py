"""Deploy hook: roles, migrations, first key."""
