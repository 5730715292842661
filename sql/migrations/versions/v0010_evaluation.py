"""Comparisons of several specs on known answers."""

from sql.migrate import execute_file

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create the table."""
    execute_file("0010_evaluation.up.sql")


def downgrade() -> None:
    """Drop the table."""
    execute_file("0010_evaluation.down.sql")
