-- Specs, runs, results and failures: a job is labelled or failed once per dataset and spec, so that
-- running again replaces and never duplicates, and two specs stand side by side.
-- Locks: none on existing tables; everything is new.

CREATE SCHEMA IF NOT EXISTS reelabel;

CREATE TABLE reelabel.spec (
    spec_id    text PRIMARY KEY,
    body       jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE reelabel.run (
    run_id           uuid PRIMARY KEY,
    dataset          text NOT NULL,
    spec_id          text NOT NULL REFERENCES reelabel.spec,
    manifest_uri     text NOT NULL,
    kind             text NOT NULL CHECK (kind IN ('classify', 'backfill')),
    state            text NOT NULL CHECK (state IN ('running', 'done', 'failed')),
    message          text NOT NULL DEFAULT '',
    jobs_total       bigint NOT NULL CHECK (jobs_total >= 0),
    jobs_skipped     bigint NOT NULL CHECK (jobs_skipped >= 0),
    jobs_labelled    bigint NOT NULL DEFAULT 0,
    jobs_failed      bigint NOT NULL DEFAULT 0,
    videos_extracted bigint NOT NULL DEFAULT 0,
    videos_cached    bigint NOT NULL DEFAULT 0,
    shards_total     bigint NOT NULL DEFAULT 0,
    shards_done      bigint NOT NULL DEFAULT 0,
    stage_ms         jsonb NOT NULL DEFAULT '{}',
    versions         jsonb NOT NULL DEFAULT '{}',
    host             text NOT NULL,
    started_at       timestamptz NOT NULL DEFAULT now(),
    ended_at         timestamptz
);
CREATE INDEX run_by_start ON reelabel.run (started_at DESC);

CREATE TABLE reelabel.result (
    dataset            text NOT NULL,
    job_id             text NOT NULL,
    spec_id            text NOT NULL REFERENCES reelabel.spec,
    job_digest         text NOT NULL,
    source_fingerprint text NOT NULL,
    label              text NOT NULL,
    choice_index       smallint NOT NULL CHECK (choice_index >= 0),
    probabilities      double precision[] NOT NULL,
    margin             double precision NOT NULL CHECK (margin BETWEEN 0 AND 1),
    keyframes_in_file  integer,
    frames_used        integer NOT NULL,
    prompt_tokens      integer NOT NULL,
    cached_tokens      integer NOT NULL,
    fetch_ms           double precision NOT NULL,
    decode_ms          double precision NOT NULL,
    cache_write_ms     double precision NOT NULL,
    cache_read_ms      double precision NOT NULL,
    preprocess_ms      double precision NOT NULL,
    inference_ms       double precision NOT NULL,
    run_id             uuid NOT NULL REFERENCES reelabel.run,
    shard_index        integer NOT NULL,
    model              text NOT NULL,
    versions           jsonb NOT NULL,
    host               text NOT NULL,
    answer             text,
    task               text,
    subtask            text,
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dataset, job_id, spec_id),
    CHECK (choice_index < array_length(probabilities, 1))
);
CREATE INDEX result_by_run ON reelabel.result (run_id);

CREATE TABLE reelabel.failure (
    dataset            text NOT NULL,
    job_id             text NOT NULL,
    spec_id            text NOT NULL REFERENCES reelabel.spec,
    job_digest         text NOT NULL,
    source_fingerprint text,
    stage              text NOT NULL,
    code               text NOT NULL,
    message            text NOT NULL,
    attempts           integer NOT NULL DEFAULT 1 CHECK (attempts >= 1),
    run_id             uuid NOT NULL REFERENCES reelabel.run,
    shard_index        integer NOT NULL,
    host               text NOT NULL,
    task               text,
    subtask            text,
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dataset, job_id, spec_id)
);
CREATE INDEX failure_by_run ON reelabel.failure (run_id);
