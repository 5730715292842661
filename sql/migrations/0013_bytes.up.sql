-- How much of its video was read for an answer; null in the rows of before.
-- Locks: ACCESS EXCLUSIVE on result for an instant; the table is not rewritten.

ALTER TABLE reelabel.result ADD COLUMN bytes_fetched bigint CHECK (bytes_fetched >= 0);
