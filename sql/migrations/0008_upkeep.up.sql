-- A run tells that it lives, so that one whose node was lost does not stay `running`; and which
-- manifests were started on their arrival, so that each is started once.
-- Locks: ACCESS EXCLUSIVE on run for an instant; no table is rewritten.

ALTER TABLE reelabel.run ADD COLUMN seen_at timestamptz NOT NULL DEFAULT now();
ALTER TABLE reelabel.run DROP CONSTRAINT run_state_check;
ALTER TABLE reelabel.run ADD CONSTRAINT run_state_check
    CHECK (state IN ('running', 'done', 'failed', 'cancelled', 'lost')) NOT VALID;

CREATE TABLE reelabel.arrival (
    manifest_uri text NOT NULL,
    fingerprint  text NOT NULL,
    flow_run_id  uuid NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (manifest_uri, fingerprint)
);
