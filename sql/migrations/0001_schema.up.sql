-- The whole schema. A job has one label or one failure per dataset and spec, so that a second run replaces rows
-- instead of duplicating them, and specs can be compared.
-- Locks: none on existing tables; everything is new.

CREATE SCHEMA IF NOT EXISTS reelabel;

-- Everything on the run's side that can change an answer.
CREATE TABLE reelabel.spec (
    spec_id    text PRIMARY KEY,
    body       jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- seen_at is the heartbeat: without it, a run whose node was lost would stay `running`. process names the run's process,
-- so that on its own machine a killed one is noticed at once.
-- wall_ms is the mean over engines. Values known only at the end of a run are null until then. reference_at is when the
-- run was marked as the reference of its manifest, whose spec backfills take; the latest mark counts.
CREATE TABLE reelabel.run (
    run_id             uuid PRIMARY KEY,
    dataset            text NOT NULL,
    spec_id            text NOT NULL REFERENCES reelabel.spec,
    manifest_uri       text NOT NULL,
    native_sampler     text NOT NULL DEFAULT '',
    kind               text NOT NULL CHECK (kind IN ('classify', 'describe', 'backfill')),
    state              text NOT NULL CHECK (state IN ('running', 'done', 'failed', 'cancelled', 'lost')),
    message            text NOT NULL DEFAULT '',
    started_at         timestamptz NOT NULL DEFAULT now(),
    seen_at            timestamptz NOT NULL DEFAULT now(),
    ended_at           timestamptz,
    jobs_total         bigint NOT NULL CHECK (jobs_total >= 0),
    jobs_rejected      bigint NOT NULL DEFAULT 0 CHECK (jobs_rejected >= 0),
    jobs_skipped       bigint NOT NULL CHECK (jobs_skipped >= 0),
    jobs_labelled      bigint NOT NULL DEFAULT 0,
    jobs_failed        bigint NOT NULL DEFAULT 0,
    videos_extracted   bigint NOT NULL DEFAULT 0,
    videos_cached      bigint NOT NULL DEFAULT 0,
    videos_remade      bigint NOT NULL DEFAULT 0,
    shards_total       bigint NOT NULL DEFAULT 0,
    shards_done        bigint NOT NULL DEFAULT 0,
    coverage           jsonb NOT NULL DEFAULT '{}',
    stage_ms           jsonb NOT NULL DEFAULT '{}',
    wall_ms            jsonb,
    engines            bigint NOT NULL DEFAULT 1 CHECK (engines > 0),
    gpus               bigint,
    prompt_tokens      bigint,
    cached_tokens      bigint,
    jobs_per_s         double precision,
    jobs_per_hour_held double precision,
    bottleneck         text,
    versions           jsonb NOT NULL DEFAULT '{}',
    host               text NOT NULL,
    process            text,
    reference_at       timestamptz
);
CREATE INDEX run_by_start ON reelabel.run (started_at DESC);

-- The specs of a run. Results and failures refer to run and spec by this one key: one check per row
-- instead of two, and it also proves that the run and the spec belong together.
CREATE TABLE reelabel.run_spec (
    run_id  uuid NOT NULL REFERENCES reelabel.run ON DELETE CASCADE,
    spec_id text NOT NULL REFERENCES reelabel.spec,
    PRIMARY KEY (run_id, spec_id)
);

-- Labels. fence is the token of the lease under which the row was written: an older lease never overwrites the rows
-- of a newer one. first_label and first_margin are those of the first pass, before escalation to a dense sampler.
CREATE TABLE reelabel.result (
    dataset            text NOT NULL,
    job_id             text NOT NULL,
    spec_id            text NOT NULL,
    job_digest         text NOT NULL,
    source_fingerprint text NOT NULL,
    label              text NOT NULL,
    choice_index       smallint NOT NULL CHECK (choice_index >= 0),
    probabilities      double precision[] NOT NULL,
    margin             double precision NOT NULL CHECK (margin BETWEEN 0 AND 1),
    entropy_nats       double precision NOT NULL CHECK (entropy_nats >= 0),
    choice_mass        double precision CHECK (choice_mass BETWEEN 0 AND 1),
    permutations       smallint NOT NULL DEFAULT 1,
    order_agreement    double precision,
    order_spread       double precision,
    same_position      boolean,
    routed_by          text,
    first_label        text,
    first_margin       double precision,
    escalate_below    double precision,
    chunks             integer CHECK (chunks > 0),
    chunks_answered    integer CHECK (chunks_answered BETWEEN 1 AND chunks),
    answer             text,
    task               text,
    subtask            text,
    sampler            text,
    coverage           text,
    keyframe_coverage  double precision,
    longest_gap_s      double precision,
    chosen_ms          text,
    keyframes_in_file  integer,
    frames_decoded     integer CHECK (frames_decoded >= 0),
    frames_used        integer NOT NULL,
    bytes_fetched      bigint CHECK (bytes_fetched >= 0),
    decode_method      text,
    decode_note        text,
    prompt_tokens      integer NOT NULL,
    cached_tokens      integer NOT NULL,
    fetch_ms           double precision NOT NULL,
    decode_ms          double precision NOT NULL,
    embed_ms           double precision NOT NULL DEFAULT 0,
    cache_write_ms     double precision NOT NULL,
    cache_read_ms      double precision NOT NULL,
    preprocess_ms      double precision NOT NULL,
    inference_ms       double precision NOT NULL,
    run_id             uuid NOT NULL,
    shard_index        integer NOT NULL,
    fence              bigint NOT NULL DEFAULT 0,
    model              text NOT NULL,
    versions           jsonb NOT NULL,
    host               text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dataset, job_id, spec_id),
    FOREIGN KEY (run_id, spec_id) REFERENCES reelabel.run_spec,
    CHECK (choice_index < array_length(probabilities, 1))
);
CREATE INDEX result_by_run ON reelabel.result (run_id);

-- Labels that were replaced by another answer or by a failure, with what `reelabel diff` compares. replaced_by is the
-- run that did so.
CREATE TABLE reelabel.result_history (
    history_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dataset            text NOT NULL,
    job_id             text NOT NULL,
    spec_id            text NOT NULL,
    job_digest         text NOT NULL,
    source_fingerprint text NOT NULL,
    task               text,
    label              text NOT NULL,
    probabilities      double precision[] NOT NULL,
    margin             double precision NOT NULL,
    model              text NOT NULL,
    run_id             uuid NOT NULL,
    created_at         timestamptz NOT NULL,
    replaced_by        uuid NOT NULL,
    replaced_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX result_history_by_job ON reelabel.result_history (dataset, job_id);
CREATE INDEX result_history_by_run ON reelabel.result_history (run_id);
CREATE INDEX result_history_by_replacement ON reelabel.result_history (replaced_by);

CREATE TABLE reelabel.failure (
    dataset            text NOT NULL,
    job_id             text NOT NULL,
    spec_id            text NOT NULL,
    job_digest         text NOT NULL,
    source_fingerprint text,
    stage              text NOT NULL,
    code               text NOT NULL,
    message            text NOT NULL,
    attempts           integer NOT NULL DEFAULT 1 CHECK (attempts >= 1),
    chunks             integer CHECK (chunks > 0),
    chunks_answered    integer CHECK (chunks_answered BETWEEN 0 AND chunks),
    task               text,
    subtask            text,
    run_id             uuid NOT NULL,
    shard_index        integer NOT NULL,
    fence              bigint NOT NULL DEFAULT 0,
    host               text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dataset, job_id, spec_id),
    FOREIGN KEY (run_id, spec_id) REFERENCES reelabel.run_spec
);
CREATE INDEX failure_by_run ON reelabel.failure (run_id);

-- The chunks that a job's label or failure follows from, each with a label of its own, or with the reason why it has
-- none. They are written and replaced together with the row of their job; of a job that is asked about some of them
-- alone, the others stay, so that each has the fence under which it was written.
CREATE TABLE reelabel.chunk (
    dataset            text NOT NULL,
    job_id             text NOT NULL,
    spec_id            text NOT NULL,
    chunk              integer NOT NULL CHECK (chunk >= 0),
    job_digest         text NOT NULL,
    source_fingerprint text,
    start_s            double precision,
    end_s              double precision,
    label              text,
    choice_index       smallint CHECK (choice_index >= 0),
    probabilities      double precision[],
    margin             double precision CHECK (margin BETWEEN 0 AND 1),
    entropy_nats       double precision,
    choice_mass        double precision,
    routed_by          text,
    stage              text,
    code               text,
    message            text,
    sampler            text,
    coverage           text,
    keyframe_coverage  double precision,
    longest_gap_s      double precision,
    chosen_ms          text,
    keyframes_in_file  integer,
    frames_decoded     integer,
    frames_used        integer,
    bytes_fetched      bigint,
    decode_method      text,
    decode_note        text,
    prompt_tokens      integer,
    cached_tokens      integer,
    fetch_ms           double precision,
    decode_ms          double precision,
    embed_ms           double precision,
    cache_write_ms     double precision,
    cache_read_ms      double precision,
    preprocess_ms      double precision,
    inference_ms       double precision,
    run_id             uuid NOT NULL,
    shard_index        integer NOT NULL,
    fence              bigint NOT NULL DEFAULT 0,
    host               text NOT NULL,
    created_at         timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dataset, job_id, spec_id, chunk),
    FOREIGN KEY (run_id, spec_id) REFERENCES reelabel.run_spec,
    CHECK ((label IS NULL) <> (code IS NULL))
);
CREATE INDEX chunk_by_run ON reelabel.chunk (run_id);

-- Descriptions of videos: one row per job and spec of a describe run, in place of a label. tags is a list, best first,
-- of objects with text, score and probability; scenes one of objects with start_s, end_s, shots and begins. Times are
-- in seconds since the video's first frame. Costs are those of the run that wrote the row: 0 for what was in the cache.
-- video_uri is without signatures and embedded videos; embedding_key and dimensions name the vectors of its frames.
CREATE TABLE reelabel.description (
    dataset             text NOT NULL,
    job_id              text NOT NULL,
    spec_id             text NOT NULL,
    job_digest          text NOT NULL,
    video_uri           text NOT NULL,
    source_fingerprint  text NOT NULL,
    embedding_key       text NOT NULL,
    dimensions          integer NOT NULL CHECK (dimensions > 0),
    duration_s          double precision NOT NULL CHECK (duration_s >= 0),
    tags                jsonb NOT NULL,
    caption             text,
    caption_score       double precision,
    caption_probability double precision,
    scenes              jsonb NOT NULL,
    scene_changes       integer NOT NULL CHECK (scene_changes >= 0),
    scene_method        text NOT NULL,
    scene_note          text NOT NULL DEFAULT '',
    chunks              integer NOT NULL CHECK (chunks > 0),
    frames_used         integer NOT NULL,
    frame_pixels        integer NOT NULL DEFAULT 0,
    task                text,
    subtask             text,
    decode_method       text,
    decode_note         text,
    frames_decoded      integer NOT NULL,
    frames_embedded     integer NOT NULL,
    bytes_fetched       bigint NOT NULL,
    fetch_ms            double precision NOT NULL,
    decode_ms           double precision NOT NULL,
    cache_write_ms      double precision NOT NULL,
    cache_read_ms       double precision NOT NULL,
    embed_ms            double precision NOT NULL,
    scenes_ms           double precision NOT NULL,
    describe_ms         double precision NOT NULL,
    run_id              uuid NOT NULL,
    shard_index         integer NOT NULL,
    fence               bigint NOT NULL DEFAULT 0,
    model               text NOT NULL,
    versions            jsonb NOT NULL,
    host                text NOT NULL,
    created_at          timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (dataset, job_id, spec_id),
    FOREIGN KEY (run_id, spec_id) REFERENCES reelabel.run_spec,
    CHECK ((caption IS NULL) = (caption_score IS NULL))
);
CREATE INDEX description_by_run ON reelabel.description (run_id);
-- For the jobs of what a search has found.
CREATE INDEX description_by_embedding ON reelabel.description USING hash (embedding_key);

-- The chunks of a described video. changes are the times at which scenes change in it; a chunk without frames has no
-- tags and no caption.
CREATE TABLE reelabel.description_chunk (
    dataset             text NOT NULL,
    job_id              text NOT NULL,
    spec_id             text NOT NULL,
    chunk               integer NOT NULL CHECK (chunk >= 0),
    start_s             double precision NOT NULL,
    end_s               double precision NOT NULL,
    frames_used         integer NOT NULL,
    tags                jsonb NOT NULL,
    caption             text,
    caption_score       double precision,
    caption_probability double precision,
    changes             double precision[] NOT NULL,
    PRIMARY KEY (dataset, job_id, spec_id, chunk),
    FOREIGN KEY (dataset, job_id, spec_id) REFERENCES reelabel.description ON DELETE CASCADE
);

-- Tokens of leases, one sequence for all plans: of two leases of any plans, the one with the greater token is newer.
CREATE SEQUENCE reelabel.fence;

-- The work of a run, in shards. Runs with the same manifest and spec share a plan.
CREATE TABLE reelabel.plan (
    plan_id              uuid PRIMARY KEY,
    run_id               uuid NOT NULL REFERENCES reelabel.run ON DELETE CASCADE,
    dataset              text NOT NULL,
    spec_id              text NOT NULL REFERENCES reelabel.spec,
    manifest_uri         text NOT NULL,
    manifest_fingerprint text NOT NULL,
    kind                 text NOT NULL CHECK (kind IN ('classify', 'describe', 'backfill')),
    shared               boolean NOT NULL,
    plan_uri             text NOT NULL,
    shards               integer NOT NULL CHECK (shards > 0),
    jobs                 bigint NOT NULL CHECK (jobs > 0),
    state                text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'done', 'dropped')),
    created_at           timestamptz NOT NULL DEFAULT now(),
    ended_at             timestamptz
);
CREATE INDEX plan_by_run ON reelabel.plan (run_id);
CREATE INDEX plan_open ON reelabel.plan (spec_id, created_at) WHERE state = 'open';
CREATE UNIQUE INDEX plan_shared ON reelabel.plan (dataset, spec_id, manifest_fingerprint) WHERE state = 'open' AND shared;

-- Each shard is leased to one worker at a time. Rows are updated often: with half of each page free, Postgres can keep
-- new versions of a row on the same page (HOT updates).
CREATE TABLE reelabel.shard (
    plan_id     uuid NOT NULL REFERENCES reelabel.plan ON DELETE CASCADE,
    shard_index integer NOT NULL,
    jobs        integer NOT NULL CHECK (jobs > 0),
    state       text NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'extracted', 'done', 'failed')),
    claimed_for text CHECK (claimed_for IN ('extract', 'infer', 'both')),
    holder      text,
    lease_until timestamptz,
    token       bigint,
    attempts    smallint NOT NULL DEFAULT 0,
    message     text NOT NULL DEFAULT '',
    report      jsonb,
    PRIMARY KEY (plan_id, shard_index)
) WITH (fillfactor = 50);
-- Claimable shards and leased shards. Both indexes stay small, so that the cost of a claim does not grow with the plan.
CREATE INDEX shard_free ON reelabel.shard (plan_id, state, shard_index)
    WHERE lease_until IS NULL AND state IN ('planned', 'extracted');
CREATE INDEX shard_held ON reelabel.shard (plan_id) WHERE lease_until IS NOT NULL;

-- One temperature per spec, fitted on known answers, with its effect on held-out jobs. Results keep the raw
-- probabilities of the model.
CREATE TABLE reelabel.calibration (
    spec_id           text PRIMARY KEY REFERENCES reelabel.spec,
    temperature       double precision NOT NULL CHECK (temperature > 0),
    temperature_low   double precision NOT NULL,
    temperature_high  double precision NOT NULL,
    run_id            uuid NOT NULL,
    dataset           text NOT NULL,
    manifest_uri      text NOT NULL,
    jobs              bigint NOT NULL CHECK (jobs > 0),
    wrong             bigint NOT NULL CHECK (wrong > 0),
    accuracy          double precision NOT NULL,
    confidence_before double precision NOT NULL,
    confidence_after  double precision NOT NULL,
    ece_before        double precision NOT NULL,
    ece_after         double precision NOT NULL,
    nll_before        double precision NOT NULL,
    nll_after         double precision NOT NULL,
    nll_change_low    double precision NOT NULL,
    nll_change_high   double precision NOT NULL,
    bins              smallint NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now()
);

-- The margin below which a job is escalated to a dense sampler: one per spec, proven on known answers, with its effect
-- on them.
CREATE TABLE reelabel.route (
    spec_id           text PRIMARY KEY REFERENCES reelabel.spec,
    escalate_below   double precision NOT NULL CHECK (escalate_below >= 0),
    dataset           text NOT NULL,
    manifest_uri      text NOT NULL,
    first_spec_id     text NOT NULL REFERENCES reelabel.spec,
    dense_spec_id     text NOT NULL REFERENCES reelabel.spec,
    jobs              bigint NOT NULL CHECK (jobs > 0),
    target            double precision NOT NULL,
    loss_at_most      double precision NOT NULL,
    accuracy          double precision NOT NULL,
    first_accuracy    double precision NOT NULL,
    dense_accuracy    double precision NOT NULL,
    asked_again       double precision NOT NULL,
    frames_decoded    bigint NOT NULL,
    first_frames      bigint NOT NULL,
    dense_frames      bigint NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now()
);

-- Comparisons of several specs on known answers, each as one document: accuracies, differences, costs.
CREATE TABLE reelabel.evaluation (
    evaluation_id uuid PRIMARY KEY,
    dataset       text NOT NULL,
    manifest_uri  text NOT NULL,
    body          jsonb NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX evaluation_by_dataset ON reelabel.evaluation (dataset, created_at);

-- Manifests for which a run was started on arrival, so that each version is started once.
CREATE TABLE reelabel.arrival (
    manifest_uri text NOT NULL,
    fingerprint  text NOT NULL,
    flow_run_id  uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (manifest_uri, fingerprint)
);

-- Live sessions, one row each. seen_at is the heartbeat of the server: without it, a session whose server was killed
-- would stay open. A session that has ended has a reason. config is what the client asked for.
CREATE TABLE reelabel.live_session (
    session_id      uuid PRIMARY KEY,
    model           text NOT NULL,
    config          jsonb NOT NULL,
    started_at      timestamptz NOT NULL DEFAULT now(),
    seen_at         timestamptz NOT NULL DEFAULT now(),
    ended_at        timestamptz,
    reason          text,
    frames_received bigint CHECK (frames_received >= 0),
    frames_similar  bigint CHECK (frames_similar >= 0),
    frames_kept     bigint NOT NULL DEFAULT 0 CHECK (frames_kept >= 0),
    frames_evicted  bigint CHECK (frames_evicted >= 0),
    frames_lost     bigint NOT NULL DEFAULT 0 CHECK (frames_lost >= 0),
    audio_s         double precision NOT NULL DEFAULT 0 CHECK (audio_s >= 0),
    versions        jsonb NOT NULL,
    host            text NOT NULL,
    CHECK ((ended_at IS NULL) = (reason IS NULL))
);
CREATE INDEX live_session_by_start ON reelabel.live_session (started_at DESC);

-- The frame files of a session's kept frames, in order. Times are those of the frames, in seconds; key is below the
-- store's root.
CREATE TABLE reelabel.live_frames (
    session_id  uuid NOT NULL REFERENCES reelabel.live_session ON DELETE CASCADE,
    part        integer NOT NULL CHECK (part >= 0),
    key         text NOT NULL,
    first_frame bigint NOT NULL CHECK (first_frame >= 0),
    frames      integer NOT NULL CHECK (frames > 0),
    first_s     double precision NOT NULL,
    last_s      double precision NOT NULL,
    bytes       bigint NOT NULL,
    PRIMARY KEY (session_id, part)
);

-- The queries of a session, each written before its answer is acknowledged. frames are the numbers of the kept frames
-- that a query saw, in order; one is listed twice where the model was shown it twice, as its successor had another size.
-- asked_s and last_frame_s are on the session's clock; first_token_ms and total_ms are from the query's arrival. A query
-- without an answer has a code.
CREATE TABLE reelabel.live_query (
    session_id     uuid NOT NULL REFERENCES reelabel.live_session ON DELETE CASCADE,
    query          integer NOT NULL CHECK (query >= 0),
    question       text NOT NULL,
    choices        text[] CHECK (array_length(choices, 1) >= 2),
    answer         text,
    choice_index   smallint CHECK (choice_index >= 0),
    probabilities  double precision[],
    margin         double precision CHECK (margin BETWEEN 0 AND 1),
    code           text,
    message        text,
    asked_s        double precision NOT NULL,
    frames         integer[] NOT NULL,
    last_frame_s   double precision,
    audio_s        double precision NOT NULL DEFAULT 0 CHECK (audio_s >= 0),
    prompt_tokens  integer NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens  integer NOT NULL CHECK (cached_tokens >= 0),
    output_tokens  integer NOT NULL CHECK (output_tokens >= 0),
    first_token_ms double precision,
    total_ms       double precision NOT NULL CHECK (total_ms >= 0),
    model          text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (session_id, query),
    CHECK ((answer IS NULL) <> (code IS NULL)),
    CHECK (choices IS NULL OR answer IS NULL OR choice_index IS NOT NULL)
);
