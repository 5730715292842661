"""One shard: lease, extraction, inference and report."""
