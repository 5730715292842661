-- The hand-off of work: a plan's shards, each leased to one worker at a time, and on every result the
-- number of the lease it was written under, so that an older lease never overwrites a newer answer.
-- Locks: ACCESS EXCLUSIVE on result and failure for an instant, none is rewritten; SHARE ROW EXCLUSIVE
-- on run and spec for an instant, for the references.

-- One sequence for all plans: of two leases, wherever given out, the greater number is the newer.
CREATE SEQUENCE reelabel.fence;

CREATE TABLE reelabel.plan (
    plan_id              uuid PRIMARY KEY,
    run_id               uuid NOT NULL REFERENCES reelabel.run ON DELETE CASCADE,
    dataset              text NOT NULL,
    spec_id              text NOT NULL REFERENCES reelabel.spec,
    manifest_uri         text NOT NULL,
    manifest_fingerprint text NOT NULL,
    kind                 text NOT NULL CHECK (kind IN ('classify', 'backfill')),
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
-- Runs that ask the same share one plan.
CREATE UNIQUE INDEX plan_shared ON reelabel.plan (dataset, spec_id, manifest_fingerprint) WHERE state = 'open' AND shared;

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
-- What can be claimed, and what is held: both stay small, so that a claim costs the same at any size.
CREATE INDEX shard_free ON reelabel.shard (plan_id, state, shard_index)
    WHERE lease_until IS NULL AND state IN ('planned', 'extracted');
CREATE INDEX shard_held ON reelabel.shard (plan_id) WHERE lease_until IS NOT NULL;

ALTER TABLE reelabel.result ADD COLUMN fence bigint NOT NULL DEFAULT 0;
ALTER TABLE reelabel.failure ADD COLUMN fence bigint NOT NULL DEFAULT 0;
