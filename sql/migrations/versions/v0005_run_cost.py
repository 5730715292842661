"""What a run cost."""

from sql.migrate import execute_file

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the columns."""
    execute_file("0005_run_cost.up.sql")


def downgrade() -> None:
    """Drop the columns."""
    execute_file("0005_run_cost.down.sql")
