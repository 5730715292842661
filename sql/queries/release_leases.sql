-- Release all leases of a holder; each shard stays in the state in which it was claimed. A shard whose results are being
-- written at the moment is skipped: its writer ends the lease.
-- Parameters: holder.
WITH held AS MATERIALIZED (
    SELECT plan_id, shard_index
    FROM reelabel.shard
    WHERE holder = :holder AND lease_until IS NOT NULL
    FOR UPDATE SKIP LOCKED
)
UPDATE reelabel.shard
SET lease_until = NULL, claimed_for = NULL
FROM held
WHERE shard.plan_id = held.plan_id AND shard.shard_index = held.shard_index
