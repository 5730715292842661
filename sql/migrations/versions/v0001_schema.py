"""Initial revision: the whole schema."""

from sql.migrate import digest, execute_file

# Until the first release, the files themselves change. A database that was made from other texts has then another
# revision, and is refused in a sentence rather than by the first missing column.
_FILES = ("0001_schema.up.sql", "job_state.sql")
revision = f"0001_{digest(*_FILES)}"
down_revision = None


def upgrade() -> None:
    """Create the tables and the view."""
    for name in _FILES:
        execute_file(name)


def downgrade() -> None:
    """Drop the tables."""
    execute_file("0001_schema.down.sql")
