"""Wording of messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Sequence

# Control, format (bidirectional, zero-width), surrogate, and line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# Zero-width characters that join letters in Persian and Indic scripts, and the parts of emoji.
_JOINERS = "\u200c\u200d"
_CONTROL_PICTURES = 0x2400
_DELETE, _DELETE_PICTURE = 0x7F, "␡"
_SHOWN_CHARACTERS = 100
_OWN_LINE = re.compile(r"\s*\n\s*(?:- )?")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_LONGEST_REASON = 300


def pluralize(count: int, noun: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def named(noun: str, names: Sequence[str]) -> str:
    """Return names after their noun: column a, columns a, b."""
    return f"{noun if len(names) == 1 else noun + 's'} {', '.join(names)}"


def shorten(text: str) -> str:
    """Return a text for a message: its first characters, and how many there are, if it is long."""
    is_short = len(text) <= _SHOWN_CHARACTERS
    return text if is_short else f"{text[:_SHOWN_CHARACTERS]}... ({len(text):,} characters)"


def quoted(value: object) -> str:
    """Return a value of a user's file for a message, in quotes if it is a text."""
    return shorten(repr(value))


def on_one_line(message: str) -> str:
    """Return a message that may have lines of its own, such as one for each fault, as one line."""
    return _OWN_LINE.sub(" ", message)


def reason_of(text: str) -> str:
    """Return the text of a package's error for a message: its beginning on one line, without colours and controls."""
    return escape_controls(" ".join(_COLOUR.sub("", text).split()))[:_LONGEST_REASON]


def escape_controls(text: str, *, keep: str = "") -> str:
    """Return a text with its invisible characters as pictures: `␛` for ESC, `␊` for a newline, `<U+202E>` for others.

    Otherwise a job id or a file name could move the cursor, forge a line, or reverse what follows it. Left alone are
    the characters in `keep`, such as the newlines of our own layout, and joiners between two non-ASCII characters.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or category(each) not in _HIDDEN or _is_joiner(text, at) else _picture(ord(each))
        for at, each in enumerate(text)
    )


def _is_joiner(text: str, at: int) -> bool:
    around = text[max(0, at - 1) : at] + text[at + 1 : at + 2]
    return text[at] in _JOINERS and len(around) == 2 and not any(map(str.isascii, around))  # noqa: PLR2004 - neighbours


def first_control(text: str) -> str:
    """Return the first character of a text that cannot be printed, as `U+202E`; empty if there is none."""
    if text.isprintable():
        return ""
    return next((f"U+{ord(each):04X}" for each in text if category(each) in _HIDDEN and each not in _JOINERS), "")


def _picture(code: int) -> str:
    if code < ord(" "):
        return chr(_CONTROL_PICTURES + code)
    return _DELETE_PICTURE if code == _DELETE else f"<U+{code:04X}>"


def read_error(error: Exception) -> str:
    """Return why a file of text cannot be read, in a clause without its name."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not a text in UTF-8"
    return getattr(error, "strerror", None) or str(error)
