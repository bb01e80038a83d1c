"""Probe, pulsed, of what is measured hourly: sizes of the database and of the registered tables."""
