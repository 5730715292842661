-- Failures among the jobs of the temporary table `asked` under a spec, by code, with the first job of
-- each as its example.
-- Parameters: dataset, spec_id. Rows: code, count, job_id, message; the most frequent code first.
SELECT
    code,
    count(*) AS count,
    min(job_id) AS job_id,
    (array_agg(message ORDER BY job_id))[1] AS message
FROM reelabel.failure JOIN asked USING (job_id, job_digest)
WHERE dataset = :dataset AND spec_id = :spec_id
GROUP BY code
ORDER BY count DESC, code
