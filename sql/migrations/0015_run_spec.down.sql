-- Gives every row its own references to run and spec back; labels stay.

ALTER TABLE reelabel.result
DROP CONSTRAINT result_run_id_spec_id_fkey,
ADD FOREIGN KEY (run_id) REFERENCES reelabel.run,
ADD FOREIGN KEY (spec_id) REFERENCES reelabel.spec;
ALTER TABLE reelabel.failure
DROP CONSTRAINT failure_run_id_spec_id_fkey,
ADD FOREIGN KEY (run_id) REFERENCES reelabel.run,
ADD FOREIGN KEY (spec_id) REFERENCES reelabel.spec;

DROP TABLE reelabel.run_spec;
