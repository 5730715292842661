-- The outcome of each job, labels, descriptions and failures together, from which a backfill selects: all columns of the
-- three tables, null in the rows of a table that lacks them. Run again after a migration that adds a column to one.
-- Locks: ACCESS EXCLUSIVE on the view.
DROP VIEW IF EXISTS reelabel.job_state;
DO $$
DECLARE
    selects text;
BEGIN
    WITH kind (place, name, state) AS (
        VALUES (1, 'result', 'labelled'), (2, 'description', 'described'), (3, 'failure', 'failed')
    ), its AS (
        SELECT
            kind.place, kind.name, kind.state, attname AS column_name, attnum,
            format_type(atttypid, atttypmod) AS column_type
        FROM kind
        JOIN pg_attribute ON attrelid = format('reelabel.%I', kind.name)::regclass AND attnum > 0 AND NOT attisdropped
    ), every AS (
        SELECT column_name, column_type, min(place * 1000 + attnum) AS place
        FROM its
        GROUP BY column_name, column_type
    ), one AS (
        SELECT
            kind.place,
            format(
                'SELECT %L::text AS state, %s FROM reelabel.%I', kind.state,
                string_agg(
                    CASE WHEN its.column_name IS NULL
                        THEN format('NULL::%s AS %I', every.column_type, every.column_name)
                        ELSE quote_ident(every.column_name)
                    END, ', ' ORDER BY every.place
                ), kind.name
            ) AS query
        FROM kind
        CROSS JOIN every
        LEFT JOIN its ON its.place = kind.place AND its.column_name = every.column_name
        GROUP BY kind.place, kind.name, kind.state
    )
    SELECT string_agg(query, ' UNION ALL ' ORDER BY place) INTO selects FROM one;
    EXECUTE 'CREATE VIEW reelabel.job_state AS ' || selects;
END
$$;
