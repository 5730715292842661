"""Plans, their shards, and the leases that workers hold on shards."""
