"""Runs that live, runs that are lost, and manifests that arrived."""

from sql.migrate import execute_file

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add the column, the state and the table."""
    execute_file("0008_upkeep.up.sql")


def downgrade() -> None:
    """Take them away."""
    execute_file("0008_upkeep.down.sql")
