-- Sum the reports of a plan's done shards, by all workers, without the excluded shards.
-- Parameters: plan_id, excluded. Rows: one, with the summed tally as a JSON object, and the engines with their GPUs.
WITH ended AS (
    SELECT holder, report
    FROM reelabel.shard
    WHERE
        plan_id = :plan_id AND state = 'done' AND report IS NOT NULL
        AND shard_index != ALL (CAST(:excluded AS integer []))
), total AS (
    SELECT name, sum(amount::double precision) AS amount
    FROM ended, jsonb_each_text(report -> 'tally') AS tallied (name, amount)
    GROUP BY name
), engine AS (
    SELECT max((report ->> 'gpus')::bigint) AS gpus FROM ended GROUP BY holder
)
SELECT
    (SELECT coalesce(jsonb_object_agg(name, amount), '{}') FROM total) AS tally,
    (SELECT greatest(count(*), 1) FROM engine) AS engines,
    (SELECT coalesce(sum(gpus), 0)::bigint FROM engine) AS gpus
