-- Lock jobs against other writers until the transaction ends, in the order of their keys to avoid deadlocks.
-- Locks are per job rather than per dataset, so that writers of different jobs can commit at the same time.
-- Parameters: dataset, spec_id, job_ids.
SELECT pg_advisory_xact_lock(key)
FROM (
    SELECT DISTINCT hashtextextended(concat_ws('/', CAST(:dataset AS text), CAST(:spec_id AS text), job_id), 0) AS key
    FROM unnest(CAST(:job_ids AS text [])) AS job_id
    ORDER BY key
) AS job
