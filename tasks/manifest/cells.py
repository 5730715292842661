"""Lists and times that a table holds as text, and texts that it holds as bytes."""

from __future__ import annotations

import json
import re

from reelabel.integrations.chat_messages import is_valid_unicode
from reelabel.text import quoted

# m:ss or h:mm:ss; only these minutes may exceed 59. A number of hundreds of digits is none that a float can hold.
_CLOCK = re.compile(r"\s*(?:(\d{1,9}):(?=\d+:))?(\d{1,9}):([0-5]?\d(?:[.,]\d+)?)\s*")
_MINUTES = 60


def parse_seconds(text: str, name: str, *, decimal_comma: bool = False) -> float:
    """Parse seconds, `minutes:seconds` or `hours:minutes:seconds`; `name` is the column, for messages.

    Raises:
        ValueError: The text is not a time; the message is a clause.
    """
    clock = _CLOCK.fullmatch(text)
    if clock and (clock[1] is None or int(clock[2]) < _MINUTES):
        return (int(clock[1] or 0) * _MINUTES + int(clock[2])) * _MINUTES + float(clock[3].replace(",", "."))
    try:
        return float(text.replace(",", ".") if decimal_comma else text)
    except ValueError:
        raise ValueError(f"{name} {quoted(text)} is not a time; write seconds, such as 90.5, or 1:30.5") from None


def parse_list(text: str, name: str) -> list[str]:
    """Parse a JSON list of strings, or texts separated by bars.

    Raises:
        ValueError: The text begins like JSON, but is not a list of strings; the message is a clause.
    """
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split("|")]
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply for a JSON list of strings") from None
    except ValueError:
        raise ValueError(f"{name} {quoted(text)} is not a JSON list") from None
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} {quoted(text)} contains a value that is not a string")
    if not all(map(is_valid_unicode, values)):
        raise ValueError(f"{name} {quoted(text)} contains an unpaired surrogate, which is not a valid character")
    return list(values)


def bytes_to_id(value: bytes) -> str:
    """Return an id that a table holds as bytes; one that is not a text, such as a hash, becomes hexadecimal."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value.hex()
    return text if text.isprintable() else value.hex()
