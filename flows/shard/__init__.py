"""One shard: leased, extracted, inferred, reported."""
