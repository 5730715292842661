"""In how many orders the choices were shown, and how much that mattered."""

from sql.migrate import execute_file

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns."""
    execute_file("0004_orders.up.sql")


def downgrade() -> None:
    """Drop the columns."""
    execute_file("0004_orders.down.sql")
