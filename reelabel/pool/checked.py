"""Records whose values are checked by the types of their fields, whoever made them.

A decoding process may have been taken over by a video, so that nothing that it sends is taken for what it should be.
"""

from __future__ import annotations

import math
from dataclasses import asdict, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from reelabel.errors import InvalidReplyError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TEXT = 2000
_INT64 = 2**63


def within(least: float, most: float = math.inf) -> Callable[[Any], Any]:
    """Return a rule for a number: it is from `least` to `most`."""

    def check(number: float) -> float:
        if not least <= number <= most:
            raise InvalidReplyError(f"{number!r} is not from {least} to {most}")
        return number

    return check


def printable(text: str) -> str:
    """Return a text of at most `MAX_TEXT` characters, without control characters.

    A terminal would obey these, and a database would refuse them.
    """
    if len(text) > MAX_TEXT:
        raise InvalidReplyError(f"a text of {len(text):,} characters")
    return "".join(each if each.isprintable() else "?" for each in text)


class Checked:
    """Base of frozen dataclasses: each value is of its field's type, and obeys the rules that annotate the type.

    An integer is no boolean and fits into 64 bits, a float is finite, and a list becomes a tuple.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            InvalidReplyError: One is not what it must be.
        """
        record: Any = type(self)
        for name, kind in _types_of(record):
            try:
                value = checked(getattr(self, name), kind)
            except InvalidReplyError as error:
                raise InvalidReplyError(f"{name}: {error}"[:MAX_TEXT]) from None
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name, for JSON."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]  # of a dataclass


@lru_cache
def _types_of(kind: type) -> tuple[tuple[str, Any], ...]:
    types = get_type_hints(kind, include_extras=True)
    return tuple((each.name, types[each.name]) for each in fields(kind))


def checked(value: Any, kind: Any) -> Any:  # noqa: ANN401 - any type, from JSON
    """Return a value as one of a type.

    Raises:
        InvalidReplyError: It is none.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        value = checked(value, parts[0])
        for rule in parts[1:]:
            value = rule(value)
        return value
    if origin in {Union, UnionType}:  # the former of annotated types
        return None if value is None else checked(value, next(part for part in parts if part is not NoneType))
    if origin is Literal:
        return _require(value, any(type(value) is type(part) and value == part for part in parts), f"one of {parts}")
    if origin is tuple:
        return _tuple(value, parts)
    if isinstance(kind, type) and is_dataclass(kind):
        return value if isinstance(value, kind) else _record(value, kind)
    return _plain(value, kind)


def _tuple(value: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ANN401
    _require(value, isinstance(value, list | tuple), "a list")
    if parts[-1] is not Ellipsis:
        _require(value, len(value) == len(parts), f"{len(parts)} values")
        return tuple(map(checked, value, parts))
    return tuple(checked(each, parts[0]) for each in value)


def _record(value: Any, kind: Any) -> Any:  # noqa: ANN401
    _require(value, isinstance(value, dict), "an object")
    _require(value, value.keys() == {each.name for each in fields(kind)}, f"the fields of {kind.__name__}")
    return kind(**value)


def _plain(value: Any, kind: type) -> Any:  # noqa: ANN401
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_small = is_number and (isinstance(value, float) or -_INT64 <= value < _INT64)
    if kind is int:
        return _require(value, is_small and isinstance(value, int), "a whole number of 64 bits")
    if kind is float:
        return float(_require(value, is_small and math.isfinite(value), "a finite number"))
    return _require(value, isinstance(value, kind), f"a {kind.__name__}")


def _require(value: Any, fits: bool, what: str) -> Any:  # noqa: ANN401, FBT001
    if not fits:
        raise InvalidReplyError(f"not {what}")
    return value
