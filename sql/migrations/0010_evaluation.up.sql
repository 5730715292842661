-- Comparisons of several specs on known answers, each a document that tells all: accuracies, differences, costs.
-- Locks: none on existing tables.

CREATE TABLE reelabel.evaluation (
    evaluation_id uuid PRIMARY KEY,
    dataset       text NOT NULL,
    manifest_uri  text NOT NULL,
    body          jsonb NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX evaluation_by_dataset ON reelabel.evaluation (dataset, created_at);
