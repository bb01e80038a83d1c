"""Projects: the tenants."""
