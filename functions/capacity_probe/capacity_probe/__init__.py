"""Hourly probe: sizes of the database and of the registered tables."""
