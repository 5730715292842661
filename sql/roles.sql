-- Three roles and their rights, none of which can log in by itself: logins of people and machines are granted one.
--   reelabel_owner   owns the schema and its tables, and migrates them
--   reelabel_writer  reads and writes rows; creates, alters and drops nothing
--   reelabel_reader  reads rows
-- Roles belong to the whole server, rights to this database. Run by an administrator: a superuser, or who owns the
-- database and may create roles. Safe to run again, before or after the first migration.
-- Locks: ACCESS EXCLUSIVE on all of Reelabel's tables for an instant, where they change their owner.

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
            NULL;  -- another database's roles were made at the same moment
        END;
    END LOOP;
    -- Who hands tables over must take part in their new owner.
    IF NOT pg_has_role('reelabel_owner', 'USAGE') THEN
        EXECUTE format('GRANT reelabel_owner TO %I', current_user);
    END IF;
    EXECUTE format('GRANT CONNECT, CREATE ON DATABASE %I TO reelabel_owner', current_database());
    EXECUTE format('GRANT CONNECT, TEMPORARY ON DATABASE %I TO reelabel_writer, reelabel_reader', current_database());

    GRANT USAGE, CREATE ON SCHEMA public TO reelabel_owner;  -- for the table of the schema's version
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
        -- A column's own sequence goes with its table.
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

-- The same for what later migrations create.
ALTER DEFAULT PRIVILEGES FOR ROLE reelabel_owner IN SCHEMA reelabel
    GRANT SELECT ON TABLES TO reelabel_writer, reelabel_reader;
ALTER DEFAULT PRIVILEGES FOR ROLE reelabel_owner IN SCHEMA reelabel
    GRANT INSERT, UPDATE, DELETE ON TABLES TO reelabel_writer;
ALTER DEFAULT PRIVILEGES FOR ROLE reelabel_owner IN SCHEMA reelabel
    GRANT USAGE ON SEQUENCES TO reelabel_writer;
