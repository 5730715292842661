"""The layout of a question: text with places in braces that are filled in."""

from __future__ import annotations

from string import Formatter

_PLACES = {"prompt", "choices"}


def check_template(template: str) -> str:
    """Make sure that a template can be filled; gives it back.

    Raises:
        ValueError: It has not exactly the places {prompt} and {choices}, one is to be converted or formatted, or
            a brace stands alone; a clause without a full stop.
    """
    try:
        places = [(name, spec, turned) for _, name, spec, turned in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ValueError(f"it is no template ({error}); double the braces that are meant as such") from None
    if {name for name, _, _ in places} != _PLACES:
        raise ValueError("it must hold {prompt} and {choices} and no other place in braces")
    if any(spec or turned for _, spec, turned in places):
        raise ValueError("its places take nothing after ! or :; write {prompt} and {choices} as they are")
    return template
