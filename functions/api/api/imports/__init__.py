"""Imports: files in the bucket on their way to a dataset."""
