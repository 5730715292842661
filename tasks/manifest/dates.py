"""Date placeholders in a manifest's URI: `s3://bucket/jobs/dt={scheduled_date}/*.parquet`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infra.errors import ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

# All other braces may be part of an object's name.
_PLACEHOLDER = re.compile(r"\{scheduled_(date|time)(?::([^{}]+))?\}")
_LOOKS_LIKE_DATE = re.compile(r"\{[^{}/]*(date|time)[^{}/]*\}", re.IGNORECASE)


def fill_date_placeholders(text: str, scheduled: datetime) -> str:
    """Replace date placeholders by the time for which a run was scheduled.

    Args:
        text: May contain `{scheduled_date}` (2026-11-01), `{scheduled_time}` (2026-11-01T02:00:00+01:00), and
            either with a `strftime` format: `{scheduled_date:%Y/%m}`.
        scheduled: Scheduled time, in the schedule's time zone.
    """
    values = {"date": scheduled.date(), "time": scheduled}
    return _PLACEHOLDER.sub(lambda found: _formatted(values[found[1]], found[2]), text)


def has_date_placeholders(text: str) -> bool:
    """Check whether a text contains date placeholders."""
    return _PLACEHOLDER.search(text) is not None


def check_date_placeholders(text: str) -> str:
    """Reject misspelt placeholders: a URI that never matches anything would go unnoticed.

    Raises:
        ConfigurationError: Something in braces looks like a date placeholder, but is not one.
    """
    found = _LOOKS_LIKE_DATE.search(_PLACEHOLDER.sub("", text))
    if found:
        raise ConfigurationError(
            f"{found[0]} in {text} is not a date placeholder; write {{scheduled_date}}, or with a format, "
            "{scheduled_date:%Y/%m/%d}."
        )
    return text


def _formatted(value: object, form: str | None) -> str:
    return format(value, form) if form else value.isoformat()  # type: ignore[attr-defined]
