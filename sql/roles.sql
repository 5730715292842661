-- Three group roles and their rights. None can log in; grant one to each login.
--   reelabel_owner   owns the schema and its tables, and migrates them
--   reelabel_writer  reads and writes rows; cannot create, alter or drop anything
--   reelabel_reader  reads rows
-- Roles belong to the whole server, rights to this database. To be run by a superuser, or by the database's owner with
-- CREATEROLE. Safe to run repeatedly, before or after the first migration.
-- Locks: ACCESS EXCLUSIVE on all of Reelabel's tables, briefly, to change their owner.

DO $$
DECLARE
    name text;
    relation record;
BEGIN
    FOREACH name IN ARRAY ARRAY['reelabel_owner', 'reelabel_writer', 'reelabel_reader'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', name);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- created concurrently, for another database
        END;
    END LOOP;
    -- To change the owner of a table, one must be a member of the new owner.
    IF NOT pg_has_role('reelabel_owner', 'USAGE') THEN
        EXECUTE format('GRANT reelabel_owner TO %I', current_user);
    END IF;
    EXECUTE format('GRANT CONNECT, CREATE ON DATABASE %I TO reelabel_owner', current_database());
    EXECUTE format('GRANT CONNECT, TEMPORARY ON DATABASE %I TO reelabel_writer, reelabel_reader', current_database());

    GRANT USAGE, CREATE ON SCHEMA public TO reelabel_owner;  -- for the table with the schema's version
    CREATE TABLE IF NOT EXISTS public.reelabel_version (
        version_num varchar(32) NOT NULL CONSTRAINT reelabel_version_pkc PRIMARY KEY
    );
    ALTER TABLE public.reelabel_version OWNER TO reelabel_owner;
    GRANT SELECT ON public.reelabel_version TO reelabel_writer, reelabel_reader;

    CREATE SCHEMA IF NOT EXISTS reelabel;
    ALTER SCHEMA reelabel OWNER TO reelabel_owner;
    FOR relation IN
        SELECT format('%I.%I', nspname, relname) AS name,
            CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind
        FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
        WHERE nspname = 'reelabel' AND relkind IN ('r', 'p', 'v', 'S')
        -- A sequence owned by a column changes its owner with the table.
        AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = pg_class.oid AND relkind = 'S' AND deptype IN ('a', 'i'))
    LOOP
        EXECUTE format('ALTER %s %s OWNER TO reelabel_owner', relation.kind, relation.name);
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA reelabel TO reelabel_writer, reelabel_reader;
GRANT SELECT ON ALL TABLES IN SCHEMA reelabel TO reelabel_writer, reelabel_reader;
GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA reelabel TO reelabel_writer;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA reelabel TO reelabel_writer;

-- The same rights on objects that later migrations create.
ALTER DEFAULT PRIVILEGES FOR ROLE reelabel_owner IN SCHEMA reelabel
    GRANT SELECT ON TABLES TO reelabel_writer, reelabel_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE reelabel_owner IN SCHEMA reelabel
    GRANT INSERT, UPDATE, DELETE ON TABLES TO reelabel_writer;
ALTER DEFAULT PRIVILEGES FOR ROLE reelabel_owner IN SCHEMA reelabel
    GRANT USAGE ON SEQUENCES TO reelabel_writer;
