"""Wording of messages."""


def pluralize(count: int, noun: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"
