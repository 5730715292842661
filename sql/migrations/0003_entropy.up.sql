-- How undecided a label is: Shannon's entropy over its probabilities, in nats, for the rows that stand, too.
-- Locks: ACCESS EXCLUSIVE on result while each of its rows is rewritten once; Postgres then reclaims the old ones.

ALTER TABLE reelabel.result ADD COLUMN entropy_nats double precision CHECK (entropy_nats >= 0);

UPDATE reelabel.result SET entropy_nats = (
    SELECT greatest(0, coalesce(-sum(share * ln(share)), 0)) FROM unnest(probabilities) AS share WHERE share > 0
);

ALTER TABLE reelabel.result ALTER COLUMN entropy_nats SET NOT NULL;
