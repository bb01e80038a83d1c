"""HTTP upload and S3 incoming: JSONL or Parquet to one canonical JSONL object."""
