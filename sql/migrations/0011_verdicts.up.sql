-- What a video's keyframes are good for, beside the answers that rest on them, and how many frames were decoded for
-- those. Null in the rows of before. Locks: ACCESS EXCLUSIVE on result and run for an instant; no table is rewritten.

ALTER TABLE reelabel.result
    ADD COLUMN sampler text,
    ADD COLUMN frames_decoded integer CHECK (frames_decoded >= 0),
    ADD COLUMN longest_gap_s double precision,
    ADD COLUMN keyframe_cover double precision,
    ADD COLUMN verdict text;
ALTER TABLE reelabel.run ADD COLUMN verdicts jsonb NOT NULL DEFAULT '{}';

CREATE OR REPLACE VIEW reelabel.job_state AS
SELECT
    dataset, job_id, spec_id, job_digest, source_fingerprint, 'labelled'::text AS state,
    label, choice_index, probabilities, margin, entropy_nats,
    permutations, order_agreement, order_spread, same_position,
    NULL::text AS stage, NULL::text AS code, NULL::text AS message, NULL::integer AS attempts,
    task, subtask, model, keyframes_in_file, frames_used, prompt_tokens, cached_tokens,
    fetch_ms, decode_ms, cache_write_ms, cache_read_ms, preprocess_ms, inference_ms,
    decode_method, decode_note, run_id, host, created_at,
    sampler, frames_decoded, longest_gap_s, keyframe_cover, verdict
FROM reelabel.result
UNION ALL
SELECT
    dataset, job_id, spec_id, job_digest, source_fingerprint, 'failed'::text,
    NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL,
    stage, code, message, attempts,
    task, subtask, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, run_id, host, created_at,
    NULL, NULL, NULL, NULL, NULL
FROM reelabel.failure;
