"""Which jobs were asked again, and the margins fitted for that."""

from sql.migrate import execute_file

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add the columns and the table."""
    execute_file("0012_routes.up.sql")


def downgrade() -> None:
    """Drop the columns and the table."""
    execute_file("0012_routes.down.sql")
