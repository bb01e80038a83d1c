"""HTTP API: projects, keys, datasets, imports, runs, evaluators, reference."""
