"""Temperatures that calibrate probabilities."""

from sql.migrate import execute_file

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    execute_file("0005_calibration.up.sql")


def downgrade() -> None:
    """Drop the table."""
    execute_file("0005_calibration.down.sql")
