-- Free shards of a plan whose leases have ended, for anyone to take up; that counts as an attempt.
-- Their tokens stay: until somebody does, the old holder may still end them.
-- Parameters: plan_id. Rows: shard_index.
WITH ended AS MATERIALIZED (
    SELECT shard_index
    FROM reelabel.shard
    WHERE plan_id = :plan_id AND lease_until <= clock_timestamp()
    FOR UPDATE SKIP LOCKED
)
UPDATE reelabel.shard
SET lease_until = NULL, claimed_for = NULL, attempts = attempts + 1, message = holder || ' was lost, or stood still.'
FROM ended
WHERE shard.plan_id = :plan_id AND shard.shard_index = ended.shard_index
RETURNING shard.shard_index
