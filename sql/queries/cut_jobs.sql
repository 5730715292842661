-- Find jobs that were cut into chunks, and which of these have no answer: the named jobs, and those that failed although
-- some of their chunks have an answer.
-- Parameters: dataset, spec_id, named (ids of jobs).
-- Rows: job_id, job_digest of its chunks, fingerprints of their videos, chunks, unanswered (numbers, ascending), and
-- is_whole: whether the chunks are those that the row of the job tells of, and are all about one question.
WITH ended AS (
    SELECT job_id, chunks
    FROM reelabel.failure
    WHERE
        dataset = :dataset AND spec_id = :spec_id
        AND (chunks_answered > 0 OR job_id = ANY(CAST(:named AS text [])))
    UNION ALL
    SELECT job_id, chunks
    FROM reelabel.result
    WHERE dataset = :dataset AND spec_id = :spec_id AND job_id = ANY(CAST(:named AS text []))
)
SELECT
    job_id,
    min(chunk.job_digest) AS job_digest,
    coalesce(
        array_agg(DISTINCT chunk.source_fingerprint) FILTER (WHERE chunk.source_fingerprint IS NOT NULL), '{}'
    ) AS fingerprints,
    count(*) AS chunks,
    coalesce(array_agg(chunk.chunk ORDER BY chunk.chunk) FILTER (WHERE chunk.label IS NULL), '{}') AS unanswered,
    count(*) = min(ended.chunks) AND count(DISTINCT chunk.job_digest) = 1 AS is_whole
FROM ended
INNER JOIN reelabel.chunk AS chunk USING (job_id)
WHERE chunk.dataset = :dataset AND chunk.spec_id = :spec_id
GROUP BY job_id
