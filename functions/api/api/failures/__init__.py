"""Failures of work, grouped."""
