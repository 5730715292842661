"""How many engines a run's work was shared by."""

from sql.migrate import execute_file

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column."""
    execute_file("0014_engines.up.sql")


def downgrade() -> None:
    """Drop the column."""
    execute_file("0014_engines.down.sql")
