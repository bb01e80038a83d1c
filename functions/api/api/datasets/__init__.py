"""Datasets: what is published, and its records. Publication itself is dataset_conversion."""
