"""Plans, and the leases of their shards."""

from sql.migrate import execute_file

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the tables."""
    execute_file("0007_plans.up.sql")


def downgrade() -> None:
    """Drop them."""
    execute_file("0007_plans.down.sql")
