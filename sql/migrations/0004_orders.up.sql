-- A result says in how many orders its choices were shown, and how much the order mattered.
-- Locks: ACCESS EXCLUSIVE on result for an instant; no table is rewritten.

ALTER TABLE reelabel.result ADD COLUMN permutations smallint NOT NULL DEFAULT 1;
ALTER TABLE reelabel.result ADD COLUMN order_agreement double precision;
ALTER TABLE reelabel.result ADD COLUMN order_spread double precision;
ALTER TABLE reelabel.result ADD COLUMN same_position boolean;
