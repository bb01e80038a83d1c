"""The catalogue of evaluators."""
