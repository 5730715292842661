-- How each job of a dataset and spec ended, labels and failures in one view: what a backfill is chosen by.
-- The columns that only the other kind has are null. Locks: none that anything waits for; the view is new.

CREATE VIEW reelabel.job_state AS
SELECT
    dataset, job_id, spec_id, job_digest, source_fingerprint, 'labelled'::text AS state,
    label, choice_index, probabilities, margin, entropy_nats,
    permutations, order_agreement, order_spread, same_position,
    NULL::text AS stage, NULL::text AS code, NULL::text AS message, NULL::integer AS attempts,
    task, subtask, model, keyframes_in_file, frames_used, prompt_tokens, cached_tokens,
    fetch_ms, decode_ms, cache_write_ms, cache_read_ms, preprocess_ms, inference_ms,
    decode_method, decode_note, run_id, host, created_at
FROM reelabel.result
UNION ALL
SELECT
    dataset, job_id, spec_id, job_digest, source_fingerprint, 'failed'::text,
    NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL,
    stage, code, message, attempts,
    task, subtask, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, run_id, host, created_at
FROM reelabel.failure;
