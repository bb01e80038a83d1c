"""Minute pulse: send due wake-ups."""
