"""Who works on what: plans, their shards, and the leases under which workers hold them."""
