-- Engines in processes of their own that answered a run's shards: wall_ms is then the mean of them.
ALTER TABLE reelabel.run ADD COLUMN engines bigint NOT NULL DEFAULT 1 CHECK (engines > 0);
