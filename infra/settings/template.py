"""Question templates: text with the placeholders {prompt} and {choices}."""

from __future__ import annotations

from string import Formatter

_PLACEHOLDERS = {"prompt", "choices"}
# Each makes the text longer by a whole prompt: a template of some kilobytes could fill the memory.
_MOST_PLACEHOLDERS = 16


def check_template(template: str) -> str:
    """Validate a template and return it.

    Raises:
        ValueError: It does not have exactly the placeholders {prompt} and {choices}, or has too many, one has a
            conversion or a format, or a brace is unbalanced. The message has no full stop.
    """
    try:
        placeholders = [
            (name, spec, conversion) for _, name, spec, conversion in Formatter().parse(template) if name is not None
        ]
    except ValueError as error:
        raise ValueError(f"not a valid template ({error}); double braces that are not placeholders") from None
    if {name for name, _, _ in placeholders} != _PLACEHOLDERS:
        raise ValueError("it must contain {prompt} and {choices}, and no other placeholder")
    if len(placeholders) > _MOST_PLACEHOLDERS:
        raise ValueError(f"it has {len(placeholders):,} placeholders; {_MOST_PLACEHOLDERS} are allowed")
    if any(spec or conversion for _, spec, conversion in placeholders):
        raise ValueError("placeholders cannot have ! or :; write {prompt} and {choices}")
    return template
