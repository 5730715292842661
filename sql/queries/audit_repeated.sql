-- Find ids that occur in several rows of the temporary table `asked`.
-- Appends to the temporary table `judged`; see audit.sql.
INSERT INTO judged
SELECT job_id, NULL, 'repeated' FROM asked GROUP BY job_id HAVING count(*) > 1
