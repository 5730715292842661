-- Let all leases of a holder that has died expire now, so that nobody waits for them. A shard whose results are being
-- written at the moment is skipped.
-- Parameters: holder.
WITH held AS MATERIALIZED (
    SELECT plan_id, shard_index
    FROM reelabel.shard
    WHERE holder = :holder AND lease_until IS NOT NULL
    FOR UPDATE SKIP LOCKED
)
UPDATE reelabel.shard
SET lease_until = clock_timestamp()
FROM held
WHERE shard.plan_id = held.plan_id AND shard.shard_index = held.shard_index
