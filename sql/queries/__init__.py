"""Queries that are too long for SQLAlchemy expressions, one per file, each with its purpose and parameters."""

from pathlib import Path


def read_query(name: str) -> str:
    return (Path(__file__).parent / f"{name}.sql").read_text(encoding="utf-8")
