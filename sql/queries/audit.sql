-- Find the outcome of each job in the temporary table `manifest_jobs` (job_id, job_digest), and rows that belong to none
-- of these jobs; jobs with a valid label or description are omitted. A single statement, hence a single snapshot: a job
-- whose failure is replaced by a label meanwhile is counted once.
-- Parameters: dataset, spec_id.
-- Fills the temporary table `job_audit`: job_id, the failure's code, ending.
INSERT INTO job_audit
WITH label AS (
    SELECT job_id, job_digest FROM reelabel.result WHERE dataset = :dataset AND spec_id = :spec_id
    UNION ALL
    SELECT job_id, job_digest FROM reelabel.description WHERE dataset = :dataset AND spec_id = :spec_id
), failure AS (
    SELECT job_id, job_digest, code FROM reelabel.failure WHERE dataset = :dataset AND spec_id = :spec_id
), ended AS (
    SELECT job_id, label.job_digest AS label_digest, failure.job_digest AS failure_digest, code
    FROM label FULL JOIN failure USING (job_id)
), outcome AS (
    SELECT
        job_id,
        code,
        CASE
            WHEN manifest_jobs.row IS NULL THEN 'orphaned'
            WHEN label_digest IS NULL AND failure_digest IS NULL THEN 'missing'
            WHEN label_digest IS NOT NULL AND failure_digest IS NOT NULL THEN 'doubled'
            WHEN coalesce(label_digest, failure_digest) IS DISTINCT FROM manifest_jobs.job_digest THEN 'stale'
            WHEN label_digest IS NOT NULL THEN 'labelled'
            ELSE 'failed'
        END AS ending
    FROM manifest_jobs FULL JOIN ended USING (job_id)
)
SELECT job_id, code, ending FROM outcome WHERE ending <> 'labelled'
