"""Initial revision: the whole schema."""

from sql.migrate import execute_file

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    execute_file("0001_schema.up.sql")


def downgrade() -> None:
    """Drop the tables."""
    execute_file("0001_schema.down.sql")
