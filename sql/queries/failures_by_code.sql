-- Count the failures of the jobs in the temporary table `asked` under a spec, by code, each with its first job as an
-- example; those that a run wrote apart from earlier ones.
-- Parameters: dataset, spec_id; run_id, or null for failures of all runs together.
-- Rows: code, count, job_id, message, since (of the first of the earlier ones; null for those of the run); the run's
-- first, then the most frequent code.
SELECT
    code,
    count(*) AS count,
    min(job_id) AS job_id,
    (array_agg(message ORDER BY job_id))[1] AS message,
    min(created_at) FILTER (WHERE run_id <> CAST(:run_id AS uuid)) AS since
FROM reelabel.failure JOIN asked USING (job_id, job_digest)
WHERE dataset = :dataset AND spec_id = :spec_id
GROUP BY code, run_id <> CAST(:run_id AS uuid)
ORDER BY run_id <> CAST(:run_id AS uuid), count DESC, code
