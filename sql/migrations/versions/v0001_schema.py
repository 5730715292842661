"""Initial revision: the whole schema."""

from hashlib import sha256

from alembic import op

from sql.migrate import execute_file, read_file
from tasks.database.columns import METADATA
from tasks.database.tables import schema_sql

# Until the first release, the tables themselves change. A database that was made from others has then another revision,
# and is refused in a sentence rather than by the first missing column. From then on, this file has their statements.
_VIEW = "job_state.sql"
revision = f"0001_{sha256((schema_sql() + read_file(_VIEW)).encode()).hexdigest()[:8]}"
down_revision = None


def upgrade() -> None:
    """Create the tables and the view."""
    op.execute("CREATE SCHEMA IF NOT EXISTS reelabel")
    METADATA.create_all(op.get_bind(), checkfirst=False)
    execute_file(_VIEW)


def downgrade() -> None:
    """Drop them, including the results. The schema itself stays, with the rights granted by roles.sql."""
    op.execute("DROP VIEW reelabel.job_state")
    METADATA.drop_all(op.get_bind(), checkfirst=False)
