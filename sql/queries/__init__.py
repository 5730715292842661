"""Statements that read better as SQL, one a file, each with its reason and parameters."""

from pathlib import Path


def read_query(name: str) -> str:
    """Read one statement by its file's stem."""
    return (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
