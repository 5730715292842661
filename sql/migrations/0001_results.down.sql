-- Takes everything away, results included. Locks: exclusive on all of Reelabel's tables.

DROP TABLE reelabel.failure;
DROP TABLE reelabel.result;
DROP TABLE reelabel.run;
DROP TABLE reelabel.spec;
