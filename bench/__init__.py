"""Benchmarks beside their peers: ratios measured side by side, never asserted."""
