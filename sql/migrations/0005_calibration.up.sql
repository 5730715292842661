-- One temperature per spec, fitted on known answers, with what it was worth on jobs that it was not
-- fitted on; the probabilities of results stay as the model gave them.
-- Locks: SHARE ROW EXCLUSIVE on spec for an instant, for the reference; the table is new.

CREATE TABLE reelabel.calibration (
    spec_id           text PRIMARY KEY REFERENCES reelabel.spec,
    temperature       double precision NOT NULL CHECK (temperature > 0),
    dataset           text NOT NULL,
    manifest_uri      text NOT NULL,
    jobs              bigint NOT NULL CHECK (jobs > 0),
    accuracy          double precision NOT NULL,
    confidence_before double precision NOT NULL,
    confidence_after  double precision NOT NULL,
    ece_before        double precision NOT NULL,
    ece_after         double precision NOT NULL,
    nll_before        double precision NOT NULL,
    nll_after         double precision NOT NULL,
    bins              smallint NOT NULL,
    created_at        timestamptz NOT NULL DEFAULT now()
);
