-- Hold on to shards for longer, as far as they are still the holder's. They are locked in the order of their
-- tokens, as by whoever writes several at once, so that no two wait for each other.
-- Parameters: plan_ids, shard_indexes and tokens (arrays of one length), lease_s.
-- Rows: token of each lease that goes on.
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
