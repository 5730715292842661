ALTER TABLE reelabel.run DROP COLUMN engines;
