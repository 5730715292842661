-- Extend the given leases that are still held. Shards are locked in the order of their tokens, as by writers of
-- several shards, to avoid deadlocks.
-- Parameters: plan_ids, shard_indexes and tokens (arrays of equal length), lease_s.
-- Rows: the token of each extended lease.
WITH held AS MATERIALIZED (
    SELECT shard.plan_id, shard.shard_index
    FROM reelabel.shard
    JOIN unnest(
        CAST(:plan_ids AS uuid []), CAST(:shard_indexes AS integer []), CAST(:tokens AS bigint [])
    ) AS mine (plan_id, shard_index, token) USING (plan_id, shard_index, token)
    WHERE lease_until IS NOT NULL
    ORDER BY shard.token
    FOR UPDATE OF shard
)
UPDATE reelabel.shard
SET lease_until = clock_timestamp() + make_interval(secs => :lease_s)
FROM held
WHERE shard.plan_id = held.plan_id AND shard.shard_index = held.shard_index
RETURNING shard.token
