ALTER TABLE reelabel.result DROP COLUMN same_position;
ALTER TABLE reelabel.result DROP COLUMN order_spread;
ALTER TABLE reelabel.result DROP COLUMN order_agreement;
ALTER TABLE reelabel.result DROP COLUMN permutations;
