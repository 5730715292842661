"""Cancelled runs, and how frames were reached."""

from sql.migrate import execute_file

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Allow the state and add the columns."""
    execute_file("0002_cancelled_and_paths.up.sql")


def downgrade() -> None:
    """Drop the columns; cancelled runs count as failed."""
    execute_file("0002_cancelled_and_paths.down.sql")
