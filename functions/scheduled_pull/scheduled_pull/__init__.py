"""Scheduled pulls: the pulse of sources, and the window of one source."""
