"""Times as S3's answers have them."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime

from botocore.utils import parse_timestamp

_FORMS = (datetime.fromisoformat, parsedate_to_datetime)  # of listings, and of headers


def parse_time(text: str) -> datetime:
    """Read a time; botocore's own way guesses at its form, which takes most of what a page of a listing does."""
    for read in _FORMS:
        with suppress(ValueError):
            return read(text)
    time: datetime = parse_timestamp(text)
    return time
