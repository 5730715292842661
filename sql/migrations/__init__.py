"""Alembic's folder; each version executes two SQL files."""
