-- Wait until nobody else writes any of some jobs, and keep others from it until the transaction ends.
-- In one order, so that no two wait for each other. Jobs rather than their dataset: writers that have none
-- in common then wait for the disk together.
-- Who locks them shares a lock on the dataset, so that whoever has too many of them can lock that alone.
-- Parameters: dataset, spec_id, job_ids.
SELECT pg_advisory_xact_lock(key)
FROM (
    SELECT DISTINCT hashtextextended(concat_ws('/', CAST(:dataset AS text), CAST(:spec_id AS text), job_id), 0) AS key
    FROM unnest(CAST(:job_ids AS text [])) AS job_id
    ORDER BY key
) AS job
