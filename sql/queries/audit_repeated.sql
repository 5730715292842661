-- Find ids that occur in several rows of the temporary table `manifest_jobs`.
-- Appends to the temporary table `job_audit`; see audit.sql.
INSERT INTO job_audit
SELECT job_id, NULL, 'repeated' FROM manifest_jobs GROUP BY job_id HAVING count(*) > 1
