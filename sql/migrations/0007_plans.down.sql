ALTER TABLE reelabel.failure DROP COLUMN fence;
ALTER TABLE reelabel.result DROP COLUMN fence;
DROP TABLE reelabel.shard;
DROP TABLE reelabel.plan;
DROP SEQUENCE reelabel.fence;
