"""How much of its video was read for an answer."""

from sql.migrate import execute_file

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the column."""
    execute_file("0013_bytes.up.sql")


def downgrade() -> None:
    """Drop the column."""
    execute_file("0013_bytes.down.sql")
