"""Initial revision: the whole schema."""

from sql.migrate import digest, execute_file

# Until the first release, the file itself changes. A database that was made from another text of it has then another
# revision, and is refused in a sentence rather than by the first missing column.
revision = f"0001_{digest('0001_schema.up.sql')}"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    execute_file("0001_schema.up.sql")


def downgrade() -> None:
    """Drop the tables."""
    execute_file("0001_schema.down.sql")
