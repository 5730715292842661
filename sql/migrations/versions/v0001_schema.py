"""Initial revision: the whole schema."""

from hashlib import sha256

from alembic import op

from sql.migrate import execute_file, read_file
from tasks.database.columns import METADATA
from tasks.database.tables import schema_sql

# Until the first release, the tables themselves change, and with them this revision: a database with other tables is
# refused with a message instead of failing at the first missing column. From then on, this file has their statements.
_VIEW = "job_state.sql"
revision = f"0001_{sha256((schema_sql() + read_file(_VIEW)).encode()).hexdigest()[:8]}"
down_revision = None


def upgrade() -> None:
    op.execute("CREATE SCHEMA IF NOT EXISTS reelabel")
    METADATA.create_all(op.get_bind(), checkfirst=False)
    execute_file(_VIEW)


def downgrade() -> None:
    """Drop tables and view. The schema stays, with the rights granted by roles.sql."""
    op.execute("DROP VIEW reelabel.job_state")
    METADATA.drop_all(op.get_bind(), checkfirst=False)
