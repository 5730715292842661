ALTER TABLE reelabel.result DROP COLUMN entropy_nats;
