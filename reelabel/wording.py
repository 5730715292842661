"""Wording of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import category

if TYPE_CHECKING:
    from collections.abc import Sequence

# Control, format (bidirectional, zero-width), surrogate, and line and paragraph separators.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# They join letters of Persian and of scripts of India, and the parts of emoji.
_JOINERS = "\u200c\u200d"
_CONTROL_PICTURES = 0x2400
_DELETE, _DELETE_PICTURE = 0x7F, "␡"


def pluralize(count: int, noun: str) -> str:
    """Return a number with its noun: 1 job, 2 jobs."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def named(noun: str, names: Sequence[str]) -> str:
    """Return names after their noun: column a, columns a, b."""
    return f"{noun if len(names) == 1 else noun + 's'} {', '.join(names)}"


def printable(text: str, *, keep: str = "") -> str:
    """Return a text with its invisible characters as pictures: `␛` for ESC, `␊` for a newline, `<U+202E>` for others.

    Otherwise a job id or a file name could move the cursor, forge a line, or reverse what follows it. `keep` are
    characters to leave, such as the newlines of a text that was laid out by us.
    """
    if text.isprintable():
        return text
    return "".join(_picture(ord(each)) if each not in keep and category(each) in _HIDDEN else each for each in text)


def unprintable(text: str) -> str:
    """Return the first character of a text that cannot be printed, as `U+202E`; empty if there is none."""
    if text.isprintable():
        return ""
    return next((f"U+{ord(each):04X}" for each in text if not each.isprintable() and each not in _JOINERS), "")


def _picture(code: int) -> str:
    if code < ord(" "):
        return chr(_CONTROL_PICTURES + code)
    return _DELETE_PICTURE if code == _DELETE else f"<U+{code:04X}>"


def why_unreadable(error: Exception) -> str:
    """Return why a file of text cannot be read, in a clause without its name."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not a text in UTF-8"
    return getattr(error, "strerror", None) or str(error)
