-- A run that its user stopped is `cancelled`, not `failed`; a result says how its frames were reached.
-- Locks: ACCESS EXCLUSIVE on run and result for an instant; no table is rewritten.

ALTER TABLE reelabel.run DROP CONSTRAINT run_state_check;
ALTER TABLE reelabel.run ADD CONSTRAINT run_state_check
    CHECK (state IN ('running', 'done', 'failed', 'cancelled')) NOT VALID;

ALTER TABLE reelabel.result ADD COLUMN decode_method text;
ALTER TABLE reelabel.result ADD COLUMN decode_note text;
