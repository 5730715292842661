-- What a run cost: its wall time by part, its tokens, its rates, and what held it up.
-- Runs of earlier versions have none of it.
-- Locks: ACCESS EXCLUSIVE on run for an instant; no table is rewritten.

ALTER TABLE reelabel.run
    ADD COLUMN wall_ms            jsonb,
    ADD COLUMN gpus               bigint,
    ADD COLUMN prompt_tokens      bigint,
    ADD COLUMN cached_tokens      bigint,
    ADD COLUMN jobs_per_s         double precision,
    ADD COLUMN jobs_per_hour_held double precision,
    ADD COLUMN bottleneck         text;
