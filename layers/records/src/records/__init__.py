"""Record model, canonical JSON, statistics and evaluators: pure functions, no database, no AWS."""
