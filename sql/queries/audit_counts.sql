-- Sum the findings of audit.sql.
-- Rows: ending, the failure's code, number of jobs, ids of the first three.
SELECT ending, code, count(*) AS jobs, (array_agg(job_id ORDER BY job_id))[1:3] AS first_ids
FROM job_audit
GROUP BY ending, code
