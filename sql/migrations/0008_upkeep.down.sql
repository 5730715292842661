-- Forgets which manifests were started: a sensor starts those that still stand there once more.

DROP TABLE reelabel.arrival;
UPDATE reelabel.run SET state = 'failed' WHERE state = 'lost';
ALTER TABLE reelabel.run DROP CONSTRAINT run_state_check;
ALTER TABLE reelabel.run ADD CONSTRAINT run_state_check
    CHECK (state IN ('running', 'done', 'failed', 'cancelled')) NOT VALID;
ALTER TABLE reelabel.run DROP COLUMN seen_at;
