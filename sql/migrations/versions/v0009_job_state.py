"""How each job ended, labels and failures in one view."""

from sql.migrate import execute_file

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the view."""
    execute_file("0009_job_state.up.sql")


def downgrade() -> None:
    """Drop the view."""
    execute_file("0009_job_state.down.sql")
