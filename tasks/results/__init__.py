"""How jobs ended: rows in Postgres, and the proof that none is missing."""
