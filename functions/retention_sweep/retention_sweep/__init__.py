"""Hourly passes: idempotency scopes, finished runs."""
