-- Release all leases of a holder; each shard stays in the state in which it was claimed. If the holder has died, let them
-- expire now instead, so that nobody waits for them. A shard whose results are being written at the moment is skipped:
-- its writer ends the lease.
-- Parameters: holder, has_died.
WITH held AS MATERIALIZED (
    SELECT plan_id, shard_index
    FROM reelabel.shard
    WHERE holder = :holder AND lease_until IS NOT NULL
    FOR UPDATE SKIP LOCKED
)
UPDATE reelabel.shard
SET lease_until = CASE WHEN :has_died THEN clock_timestamp() END,
    claimed_for = CASE WHEN :has_died THEN claimed_for END
FROM held
WHERE shard.plan_id = held.plan_id AND shard.shard_index = held.shard_index
