-- Count the failures of the jobs in the temporary table `manifest_jobs` under a spec, by code, each with its first job
-- as an example; those that a run wrote apart from those of others, before and after its start.
-- Parameters: dataset, spec_id; run_id, or null for failures of all runs together.
-- Rows: code, count, job_id, message, since (of the first of the others' ones; null for those of the run), is_earlier
-- (whether those are from before the run's start); the run's first, then the most frequent code.
SELECT
    code,
    count(*) AS count,
    min(job_id) AS job_id,
    (array_agg(message ORDER BY job_id))[1] AS message,
    min(created_at) FILTER (WHERE run_id <> CAST(:run_id AS uuid)) AS since,
    coalesce(run_id <> CAST(:run_id AS uuid) AND created_at < started_at, false) AS is_earlier
FROM reelabel.failure JOIN manifest_jobs USING (job_id, job_digest)
LEFT JOIN (SELECT started_at FROM reelabel.run WHERE run_id = CAST(:run_id AS uuid)) AS own ON true
WHERE dataset = :dataset AND spec_id = :spec_id
GROUP BY code, run_id <> CAST(:run_id AS uuid), is_earlier
ORDER BY run_id <> CAST(:run_id AS uuid), count DESC, code
