-- Count the failures of the jobs in the temporary table `asked` under a spec, by code, each with its first job as an
-- example.
-- Parameters: dataset, spec_id. Rows: code, count, job_id, message; most frequent code first.
SELECT
    code,
    count(*) AS count,
    min(job_id) AS job_id,
    (array_agg(message ORDER BY job_id))[1] AS message
FROM reelabel.failure JOIN asked USING (job_id, job_digest)
WHERE dataset = :dataset AND spec_id = :spec_id
GROUP BY code
ORDER BY count DESC, code
