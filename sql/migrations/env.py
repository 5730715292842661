"""Alembic environment: run migrations on the connection passed by `sql.migrate`."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table="reelabel_version", transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
