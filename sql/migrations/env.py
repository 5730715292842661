"""Alembic environment: run migrations on the connection passed by `sql.migrate`."""

from alembic import context

from sql.migrate import VERSION_TABLE, version_schema

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    version_table=VERSION_TABLE,
    version_table_schema=version_schema(connection),
    transaction_per_migration=False,
)
with context.begin_transaction():
    context.run_migrations()
