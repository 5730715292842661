-- Which ids several rows of the temporary table `asked` have.
-- Adds to the temporary table `judged`, see `audit`.
INSERT INTO judged
SELECT job_id, NULL, 'repeated' FROM asked GROUP BY job_id HAVING count(*) > 1
