-- Sum the reports of a plan's done shards, by all workers, without the excluded shards.
-- Parameters: plan_id, excluded, held (parts of the time for which an engine is held). Rows: one, with a column per sum; stage_ms, engines_ms and coverage are JSON objects.
WITH ended AS (
    SELECT holder, report
    FROM reelabel.shard
    WHERE
        plan_id = :plan_id AND state = 'done' AND report IS NOT NULL
        AND shard_index != ALL (CAST(:excluded AS integer []))
), stage AS (
    SELECT name, sum(ms::double precision) AS ms
    FROM ended, jsonb_each_text(report -> 'stage_ms') AS spent (name, ms)
    GROUP BY name
), engine AS (
    SELECT holder, max((report ->> 'gpus')::bigint) AS gpus FROM ended WHERE report ? 'wall_ms' GROUP BY holder
), lap AS (
    SELECT name, sum(ms::double precision) AS ms
    FROM ended, jsonb_each_text(report -> 'wall_ms') AS spent (name, ms)
    GROUP BY name
), held AS (
    SELECT ended.holder, sum(ms::double precision) AS ms
    FROM ended, jsonb_each_text(report -> 'wall_ms') AS spent (name, ms)
    WHERE name = ANY (CAST(:held AS text []))
    GROUP BY ended.holder
), coverage AS (
    SELECT name, sum(videos::bigint) AS videos
    FROM ended, jsonb_each_text(report -> 'coverage') AS counted (name, videos)
    GROUP BY name
)
SELECT
    count(*) AS shards_done,
    coalesce(sum((report ->> 'labels')::bigint), 0)::bigint AS jobs_labelled,
    coalesce(sum((report ->> 'failures')::bigint), 0)::bigint AS jobs_failed,
    coalesce(sum((report ->> 'videos_extracted')::bigint), 0)::bigint AS videos_extracted,
    coalesce(sum((report ->> 'videos_cached')::bigint), 0)::bigint AS videos_cached,
    coalesce(sum((report ->> 'videos_rewritten')::bigint), 0)::bigint AS videos_rewritten,
    coalesce(sum((report ->> 'prompt_tokens')::bigint), 0)::bigint AS prompt_tokens,
    coalesce(sum((report ->> 'cached_tokens')::bigint), 0)::bigint AS cached_tokens,
    (SELECT coalesce(jsonb_object_agg(name, ms), '{}') FROM stage) AS stage_ms,
    (SELECT greatest(count(*), 1) FROM engine) AS engines,
    (SELECT coalesce(sum(gpus), 0)::bigint FROM engine) AS gpus,
    (SELECT coalesce(jsonb_object_agg(name, ms), '{}') FROM lap) AS engines_ms,
    (SELECT coalesce(sum(held.ms * engine.gpus), 0) FROM held JOIN engine USING (holder))::double precision AS gpu_ms,
    (SELECT coalesce(jsonb_object_agg(name, videos), '{}') FROM coverage) AS coverage
FROM ended
