"""SQS: plan a run, evaluate a shard, finish a run."""
