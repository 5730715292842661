"""Dates in a manifest's name: `s3://bucket/jobs/dt={scheduled_date}/*.parquet`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

# Braces of any other kind may belong to the name of an object.
_PLACE = re.compile(r"\{scheduled_(date|time)(?::([^{}]+))?\}")
_MEANT = re.compile(r"\{[^{}/]*(date|time)[^{}/]*\}", re.IGNORECASE)


def render_dates(text: str, scheduled: datetime) -> str:
    """Fill in when a run was scheduled.

    Args:
        text: May hold `{scheduled_date}` (2026-11-01), `{scheduled_time}` (2026-11-01T02:00:00+01:00), and
            either with a form of `strftime`: `{scheduled_date:%Y/%m}`.
        scheduled: In the schedule's time zone.
    """
    values = {"date": scheduled.date(), "time": scheduled}
    return _PLACE.sub(lambda found: _shown(values[found[1]], found[2]), text)


def has_dates(text: str) -> bool:
    """Whether a name changes from night to night."""
    return _PLACE.search(text) is not None


def check_dates(text: str) -> str:
    """Make sure that no place is misspelt, for a name that never matches anything would go unnoticed.

    Raises:
        ConfigurationError: Something in braces looks like a date and is none.
    """
    found = _MEANT.search(_PLACE.sub("", text))
    if found:
        raise ConfigurationError(
            f"{found[0]} in {text} is no date; write {{scheduled_date}}, or with a form, {{scheduled_date:%Y/%m/%d}}."
        )
    return text


def _shown(value: object, form: str | None) -> str:
    return format(value, form) if form else value.isoformat()  # type: ignore[attr-defined]
