-- Lease a free shard of a plan; concurrent callers never get the same one. Extracted shards come first, so that begun
-- work is finished: 'extracted' sorts before 'planned', also in the index.
-- Parameters: plan_id, first_state and last_state (extracted or planned), claimed_for, holder, lease_s.
-- Rows: at most one: shard_index, token, jobs, attempts, message.
WITH free AS MATERIALIZED (
    SELECT shard_index
    FROM reelabel.shard
    WHERE plan_id = :plan_id
        AND state BETWEEN :first_state AND :last_state
        AND state IN ('planned', 'extracted')
        AND lease_until IS NULL
    ORDER BY state, shard_index
    LIMIT 1
    FOR UPDATE SKIP LOCKED
)
UPDATE reelabel.shard
SET token = nextval('reelabel.fence'),
    claimed_for = :claimed_for,
    holder = :holder,
    lease_until = clock_timestamp() + make_interval(secs => :lease_s)
FROM free
WHERE shard.plan_id = :plan_id AND shard.shard_index = free.shard_index
RETURNING shard.shard_index, token, jobs, attempts, message
