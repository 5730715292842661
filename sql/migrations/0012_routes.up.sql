-- Which jobs were asked again losslessly, and what was answered before; and the margins that were fitted for that, one
-- per spec, with what they were worth on jobs that they were not fitted on.
-- Locks: ACCESS EXCLUSIVE on result and SHARE ROW EXCLUSIVE on spec for an instant; no table is rewritten.

ALTER TABLE reelabel.result
    ADD COLUMN routed_by text,
    ADD COLUMN first_label text,
    ADD COLUMN first_margin double precision,
    ADD COLUMN ask_again_below double precision;

CREATE TABLE reelabel.route (
    spec_id           text PRIMARY KEY REFERENCES reelabel.spec,
    ask_again_below   double precision NOT NULL CHECK (ask_again_below >= 0),
    dataset           text NOT NULL,
    manifest_uri      text NOT NULL,
    first_spec_id     text NOT NULL REFERENCES reelabel.spec,
    lossless_spec_id  text NOT NULL REFERENCES reelabel.spec,
    jobs              bigint NOT NULL CHECK (jobs > 0),
    target            double precision NOT NULL,
    accuracy          double precision NOT NULL,
    first_accuracy    double precision NOT NULL,
    lossless_accuracy double precision NOT NULL,
    asked_again       double precision NOT NULL,
    frames_decoded    bigint NOT NULL,
    first_frames      bigint NOT NULL,
    lossless_frames   bigint NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now()
);
