"""One reference of each result to its run and spec together."""

from sql.migrate import execute_file

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Add the table, and refer to it."""
    execute_file("0015_run_spec.up.sql")


def downgrade() -> None:
    """Refer to runs and specs again, and drop the table."""
    execute_file("0015_run_spec.down.sql")
