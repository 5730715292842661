ALTER TABLE reelabel.result DROP COLUMN decode_note;
ALTER TABLE reelabel.result DROP COLUMN decode_method;
UPDATE reelabel.run SET state = 'failed' WHERE state = 'cancelled';
ALTER TABLE reelabel.run DROP CONSTRAINT run_state_check;
ALTER TABLE reelabel.run ADD CONSTRAINT run_state_check CHECK (state IN ('running', 'done', 'failed')) NOT VALID;
