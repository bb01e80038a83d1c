"""Trace stores."""
