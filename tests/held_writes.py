"""Hold back writes of a run after its first shard, so that the run can reliably be killed halfway."""

from contextlib import contextmanager

from sqlalchemy import DDL, text

from infra.database.connect import connect

_LOCK = 20_111
_HOLD = DDL(f"""
CREATE FUNCTION reelabel.hold_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM reelabel.result WHERE dataset = TG_ARGV[0])
            > (SELECT count(*) FROM added WHERE dataset = TG_ARGV[0]) THEN
        PERFORM pg_advisory_xact_lock({_LOCK});
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER hold_back AFTER INSERT ON reelabel.result REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION reelabel.hold_back(%(dataset)s)
""")
_DROP = DDL("DROP TRIGGER hold_back ON reelabel.result; DROP FUNCTION reelabel.hold_back()")


@contextmanager
def only_first_rows_of(dataset, database):
    """Let one transaction write rows of a dataset; block later ones until the context ends.

    A process killed meanwhile never commits, since Postgres detects the closed connection.
    """
    owner = connect(database.model_copy(update={"url": database.owner_url}))
    with owner.begin() as connection:
        connection.execute(DDL(_HOLD.statement, context={"dataset": f"'{dataset}'"}))
    try:
        with owner.connect() as holder, holder.begin():
            holder.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            yield
    finally:
        with owner.begin() as connection:
            connection.execute(_DROP)
        owner.dispose()
