-- Compare the chunks of the jobs in the temporary table `asked` with the counts in the rows of their jobs.
-- Parameters: dataset, spec_id.
-- Rows: one: chunks, those that failed, number of jobs whose row tells of others, ids of the first three of them.
WITH told AS (
    SELECT job_id, chunks, chunks_answered AS answered
    FROM reelabel.result
    WHERE dataset = :dataset AND spec_id = :spec_id AND chunks IS NOT NULL
    UNION ALL
    SELECT job_id, chunks, chunks_answered
    FROM reelabel.failure
    WHERE dataset = :dataset AND spec_id = :spec_id AND chunks IS NOT NULL
), found AS (
    SELECT job_id, count(*) AS chunks, count(label) AS answered
    FROM reelabel.chunk
    WHERE dataset = :dataset AND spec_id = :spec_id
    GROUP BY job_id
), compared AS (
    SELECT
        job_id,
        found.chunks,
        found.answered,
        (told.chunks, told.answered) IS DISTINCT FROM (found.chunks, found.answered) AS is_torn
    FROM told FULL JOIN found USING (job_id)
    WHERE job_id IN (SELECT asked.job_id FROM asked)
)
SELECT
    coalesce(sum(chunks), 0)::bigint AS chunks,
    coalesce(sum(chunks - answered), 0)::bigint AS failed,
    count(*) FILTER (WHERE is_torn) AS torn,
    coalesce((array_agg(job_id ORDER BY job_id) FILTER (WHERE is_torn))[1:3], '{}') AS first_ids
FROM compared
