-- How each job of the temporary table `asked` (job_id, job_digest) ended, and which rows belong to
-- no job of it, but for jobs that are labelled as they must be. One statement, hence one snapshot: a job
-- that changes sides meanwhile is seen once.
-- Parameters: dataset, spec_id.
-- Fills the temporary table `judged`: job_id, the failure's code, ending.
INSERT INTO judged
WITH label AS (
    SELECT job_id, job_digest FROM reelabel.result WHERE dataset = :dataset AND spec_id = :spec_id
), failure AS (
    SELECT job_id, job_digest, code FROM reelabel.failure WHERE dataset = :dataset AND spec_id = :spec_id
), ended AS (
    SELECT job_id, label.job_digest AS label_digest, failure.job_digest AS failure_digest, code
    FROM label FULL JOIN failure USING (job_id)
), judged AS (
    SELECT
        job_id,
        code,
        CASE
            WHEN asked.row IS NULL THEN 'orphaned'
            WHEN label_digest IS NULL AND failure_digest IS NULL THEN 'missing'
            WHEN label_digest IS NOT NULL AND failure_digest IS NOT NULL THEN 'doubled'
            WHEN coalesce(label_digest, failure_digest) IS DISTINCT FROM asked.job_digest THEN 'stale'
            WHEN label_digest IS NOT NULL THEN 'labelled'
            ELSE 'failed'
        END AS ending
    FROM asked FULL JOIN ended USING (job_id)
)
SELECT job_id, code, ending FROM judged WHERE ending <> 'labelled'
