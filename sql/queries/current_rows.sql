-- Read and lock the current labels, descriptions and failures of some jobs; a spec has either labels or descriptions.
-- Each table's rows are locked in the order of their ids, as those that get other annotations, to avoid deadlocks.
-- Parameters: dataset, spec_id, job_ids.
-- Rows: job_id, is_label, fence, job_digest, source_fingerprint, attempts (0 for labels), chunks,
-- chunks_answered; descriptions are labels without chunks, as theirs go with them.
WITH label AS (
    SELECT job_id, true AS is_label, fence, job_digest, source_fingerprint, 0 AS attempts, chunks, chunks_answered
    FROM reelabel.result
    WHERE dataset = :dataset AND spec_id = :spec_id AND job_id = ANY(CAST(:job_ids AS text []))
    ORDER BY job_id
    FOR UPDATE
), described AS (
    SELECT job_id, true, fence, job_digest, source_fingerprint, 0, NULL::integer, NULL::integer
    FROM reelabel.description
    WHERE dataset = :dataset AND spec_id = :spec_id AND job_id = ANY(CAST(:job_ids AS text []))
    ORDER BY job_id
    FOR UPDATE
), failed AS (
    SELECT job_id, false, fence, job_digest, source_fingerprint, attempts, chunks, chunks_answered
    FROM reelabel.failure
    WHERE dataset = :dataset AND spec_id = :spec_id AND job_id = ANY(CAST(:job_ids AS text []))
    ORDER BY job_id
    FOR UPDATE
)
SELECT * FROM label
UNION ALL
SELECT * FROM described
UNION ALL
SELECT * FROM failed
