-- Find jobs that were cut into chunks, and which of these have no answer: the named jobs, and those that failed although
-- some of their chunks have an answer.
-- Parameters: dataset, spec_id, named (ids of jobs).
-- Rows: job_id, job_digest of its chunks, fingerprints of their videos, chunks, unanswered (numbers, ascending), and
-- is_whole: whether the chunks are those that the row of the job tells of, and are all about one question.
SELECT
    job_id,
    min(chunk.job_digest) AS job_digest,
    coalesce(array_agg(DISTINCT chunk.source_fingerprint)
        FILTER (WHERE chunk.source_fingerprint IS NOT NULL), '{}') AS fingerprints,
    count(*) AS chunks,
    coalesce(array_agg(chunk.chunk ORDER BY chunk.chunk) FILTER (WHERE chunk.label IS NULL), '{}') AS unanswered,
    count(*) = min(ended.chunks) AND count(DISTINCT chunk.job_digest) = 1 AS is_whole
FROM reelabel.chunk AS chunk
INNER JOIN reelabel.job_state AS ended USING (dataset, job_id, spec_id)
WHERE
    dataset = :dataset AND spec_id = :spec_id
    AND (
        job_id = ANY(CAST(:named AS text []))
        OR (ended.state = 'failed' AND ended.chunks_answered > 0)
    )
GROUP BY job_id
