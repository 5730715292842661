-- What `audit` found, added up.
-- Rows: ending, the failure's code, how many jobs, the ids of the first three.
SELECT ending, code, count(*) AS jobs, (array_agg(job_id ORDER BY job_id))[1:3] AS first_ids
FROM judged
GROUP BY ending, code
