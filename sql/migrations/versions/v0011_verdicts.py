"""What keyframes are good for, beside the answers that rest on them."""

from sql.migrate import execute_file

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the columns."""
    execute_file("0011_verdicts.up.sql")


def downgrade() -> None:
    """Drop the columns."""
    execute_file("0011_verdicts.down.sql")
