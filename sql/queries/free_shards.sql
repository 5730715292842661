-- Free the shards of a plan whose leases have expired, except those that the caller still works on; each counts as a
-- failed attempt.
-- The tokens stay: until a shard is claimed again, its old holder may still finish it.
-- Parameters: plan_id, held (tokens of the caller's leases). Rows: shard_index.
WITH expired AS MATERIALIZED (
    SELECT shard_index
    FROM reelabel.shard
    WHERE
        plan_id = :plan_id AND lease_until <= clock_timestamp()
        AND token != ALL (CAST(:held AS bigint []))
    FOR UPDATE SKIP LOCKED
)
UPDATE reelabel.shard
SET lease_until = NULL, claimed_for = NULL, attempts = attempts + 1, message = 'Worker lost or stalled: ' || holder || '.'
FROM expired
WHERE shard.plan_id = :plan_id AND shard.shard_index = expired.shard_index
RETURNING shard.shard_index
