"""Who works on the shards of a run: its own flow, extract and infer flows elsewhere, or a Ray cluster."""
