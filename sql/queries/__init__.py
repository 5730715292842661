"""Queries too long for SQLAlchemy expressions, one per file, each with its purpose and parameters."""

from pathlib import Path


def read_query(name: str) -> str:
    """Return the query in the file of the given name, without its suffix."""
    return (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
