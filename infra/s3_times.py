"""Parsing of times in responses of S3."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime

from botocore.utils import parse_timestamp

_FORMS = (datetime.fromisoformat, parsedate_to_datetime)  # in listings, and in headers


def parse_time(text: str) -> datetime:
    """Parse a time. botocore's parser guesses the format, which takes most of the time of parsing a listing."""
    for read in _FORMS:
        with suppress(ValueError):
            return read(text)
    time: datetime = parse_timestamp(text)
    return time
