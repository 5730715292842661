"""Specs, runs, results and failures."""

from sql.migrate import execute_file

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    execute_file("0001_results.up.sql")


def downgrade() -> None:
    """Drop the tables."""
    execute_file("0001_results.down.sql")
