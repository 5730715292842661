"""Text that would act on a terminal, a log or a spreadsheet if it were written as it is."""

from unicodedata import category

# Clears the screen, reverses what follows, changes colours, hides itself, begins a line of its own, and is markup.
HOSTILE = "a\x1b[2J\u202egnp\u2066\x9b31m\x7f\u200b\u2028\r\nFORGED [red]b[/i] :x: \u200f\u061c\x07"
SHOWN = "a␛[2J<U+202E>gnp<U+2066><U+009B>31m␡<U+200B><U+2028>␍␊FORGED [red]b[/i] :x: <U+200F><U+061C>␇"


def hidden_in(text, *, keep="\n"):
    """List what a text has of characters that cannot be seen."""
    return [each for each in text if each not in keep and category(each) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]


def require_tame(text):
    """Check that a text has nothing hidden, and no line that was forged."""
    assert hidden_in(text) == []
    assert not any(line.startswith("FORGED") for line in text.splitlines())
