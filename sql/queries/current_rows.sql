-- Read the current labels, descriptions and failures of some jobs; a spec has either labels or descriptions.
-- Parameters: dataset, spec_id, job_ids.
-- Rows: job_id, is_label, fence, job_digest, source_fingerprint, attempts (0 for labels), chunks,
-- chunks_answered; descriptions are labels without chunks, as theirs go with them.
SELECT job_id, true AS is_label, fence, job_digest, source_fingerprint, 0 AS attempts, chunks, chunks_answered
FROM reelabel.result
WHERE dataset = :dataset AND spec_id = :spec_id AND job_id = ANY(CAST(:job_ids AS text []))
UNION ALL
SELECT job_id, true, fence, job_digest, source_fingerprint, 0, NULL, NULL
FROM reelabel.description
WHERE dataset = :dataset AND spec_id = :spec_id AND job_id = ANY(CAST(:job_ids AS text []))
UNION ALL
SELECT job_id, false AS is_label, fence, job_digest, source_fingerprint, attempts, chunks, chunks_answered
FROM reelabel.failure
WHERE dataset = :dataset AND spec_id = :spec_id AND job_id = ANY(CAST(:job_ids AS text []))
