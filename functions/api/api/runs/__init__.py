"""Runs: creation, reading, results and report. Evaluation itself is run_evaluation."""
