"""What a run cost."""

from sql.migrate import execute_file

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns."""
    execute_file("0006_run_cost.up.sql")


def downgrade() -> None:
    """Drop the columns."""
    execute_file("0006_run_cost.down.sql")
