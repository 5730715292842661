"""The entropy of labels."""

from sql.migrate import execute_file

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Add the column, and fill it."""
    execute_file("0003_entropy.up.sql")


def downgrade() -> None:
    """Drop the column."""
    execute_file("0003_entropy.down.sql")
