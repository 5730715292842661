-- Under which specs a run answers. A row of a job has one reference to it, instead of one to the run and one
-- to the spec: each is checked for every row, and this says more, that they belong together.
-- Locks: SHARE ROW EXCLUSIVE on run, spec, result and failure while every row is looked at once; reading goes on.

CREATE TABLE reelabel.run_spec (
    run_id  uuid NOT NULL REFERENCES reelabel.run ON DELETE CASCADE,
    spec_id text NOT NULL REFERENCES reelabel.spec,
    PRIMARY KEY (run_id, spec_id)
);
INSERT INTO reelabel.run_spec (run_id, spec_id)
SELECT run_id, spec_id FROM reelabel.run
UNION
SELECT DISTINCT run_id, spec_id FROM reelabel.result
UNION
SELECT DISTINCT run_id, spec_id FROM reelabel.failure;

ALTER TABLE reelabel.result
ADD FOREIGN KEY (run_id, spec_id) REFERENCES reelabel.run_spec,
DROP CONSTRAINT result_run_id_fkey,
DROP CONSTRAINT result_spec_id_fkey;
ALTER TABLE reelabel.failure
ADD FOREIGN KEY (run_id, spec_id) REFERENCES reelabel.run_spec,
DROP CONSTRAINT failure_run_id_fkey,
DROP CONSTRAINT failure_spec_id_fkey;
