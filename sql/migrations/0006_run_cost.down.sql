ALTER TABLE reelabel.run
    DROP COLUMN wall_ms,
    DROP COLUMN gpus,
    DROP COLUMN prompt_tokens,
    DROP COLUMN cached_tokens,
    DROP COLUMN jobs_per_s,
    DROP COLUMN jobs_per_hour_held,
    DROP COLUMN bottleneck;
