"""Dataclasses as JSON values and arrays, and back.

What is read back may have been written by anyone: every value is checked against the type of its field, and by the
dataclass itself.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import lru_cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    Array = npt.NDArray[Any]

MAX_TEXT = 2000
_INT64 = 2**63
_FRACTION = re.compile(r"[0-9]{1,10}(/[1-9][0-9]{0,9})?")


def to_json(value: Any) -> tuple[Any, dict[str, Array]]:  # noqa: ANN401 - any dataclass
    """Return a dataclass as JSON values, and its arrays by the names of their fields, such as `index.pts`."""
    arrays: dict[str, Array] = {}
    return _plain(value, "", arrays), arrays


def _plain(value: Any, path: str, arrays: dict[str, Array]) -> Any:  # noqa: ANN401
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return None
    if is_dataclass(value):
        inner = {each.name: f"{path}.{each.name}".lstrip(".") for each in fields(value)}
        return {name: _plain(getattr(value, name), place, arrays) for name, place in inner.items()}
    if isinstance(value, str):
        return value[:MAX_TEXT].encode(errors="replace").decode()
    return str(value) if isinstance(value, Fraction) else value


@lru_cache
def arrays_of(kind: type) -> dict[str, np.dtype[Any]]:
    """Return the types of a dataclass's arrays, and of those of dataclasses in it, by the names of the fields."""
    found: dict[str, np.dtype[Any]] = {}
    for name, hint in _types_of(kind).items():
        inner, _ = _without_none(hint)
        if get_origin(inner) is np.ndarray:
            found[name] = np.dtype(get_args(get_args(inner)[1])[0])
        elif is_dataclass(inner):
            found |= {f"{name}.{path}": dtype for path, dtype in arrays_of(cast("type", inner)).items()}
    return found


@lru_cache
def _types_of(kind: type) -> dict[str, Any]:
    types = get_type_hints(kind)
    names = [each.name for each in fields(kind)] if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]
    return {name: types[name] for name in names}


def _without_none(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401
    if get_origin(hint) not in {Union, UnionType}:
        return hint, False
    return next(part for part in get_args(hint) if part is not NoneType), NoneType in get_args(hint)


def from_json(value: Any, kind: type, arrays: Mapping[str, Array], path: str = "") -> Any:  # noqa: ANN401
    """Build a dataclass from the result of `to_json`; raise ValueError if a field or the whole is invalid.

    `path` is that of the field that holds it, by which its arrays are named.
    """
    types = _types_of(kind)
    _require(isinstance(value, dict) and value.keys() == types.keys(), f"the fields of {kind.__name__}")
    made = {}
    for name, hint in types.items():
        try:
            made[name] = _field(value[name], hint, f"{path}.{name}".lstrip("."), arrays)
        except ValueError as error:
            raise ValueError(f"{name}: {error}"[:MAX_TEXT]) from None
    return kind(**made)


def _field(value: Any, hint: Any, path: str, arrays: Mapping[str, Array]) -> Any:  # noqa: ANN401
    inner, may_be_none = _without_none(hint)
    if get_origin(inner) is np.ndarray:
        _require(value is None and (may_be_none or path in arrays), "an array")
        return arrays.get(path)
    return from_json(value, cast("type", inner), arrays, path) if is_dataclass(inner) else _checked(value, hint)


def _checked(value: Any, hint: Any) -> Any:  # noqa: ANN401
    """Return a value if it has the type: numbers are finite and fit into 64 bits, strings are short and printable."""
    hint, may_be_none = _without_none(hint)
    if may_be_none and value is None:
        return None
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _require(any(type(value) is type(part) and value == part for part in parts), f"one of {parts}", value)
    if hasattr(hint, "_fields"):
        return hint(*_values(value, [*_types_of(hint).values()]))
    if origin is tuple:
        return tuple(_values(value, parts))
    if hint in {int, float}:
        return _number(value, hint)
    _require(isinstance(value, bool if hint is bool else str), f"a {hint.__name__}")
    return value if hint is bool else _text(value, hint)


def _values(value: Any, kinds: Sequence[Any]) -> Iterable[Any]:  # noqa: ANN401
    _require(isinstance(value, list), "a list")
    if kinds[-1] is Ellipsis:
        return [_checked(each, kinds[0]) for each in value]
    _require(len(value) == len(kinds), f"{len(kinds)} values")
    return map(_checked, value, kinds)


def _number(value: Any, hint: type) -> Any:  # noqa: ANN401
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_small = is_number and (isinstance(value, float) or -_INT64 <= value < _INT64)
    if hint is int:
        return _require(is_small and isinstance(value, int), "a whole number of 64 bits", value)
    return float(_require(is_small and math.isfinite(value), "a finite number", value))


def _text(value: str, hint: type) -> Any:  # noqa: ANN401
    """Return a fraction, or a text without control characters, which terminals obey and databases refuse."""
    if hint is Fraction:
        return Fraction(_require(_FRACTION.fullmatch(value) is not None, "a fraction", value))
    _require(len(value) <= MAX_TEXT, f"a text of at most {MAX_TEXT:,} characters")
    return "".join(each if each.isprintable() else "?" for each in value)


def _require(fits: Any, what: str, value: Any = None) -> Any:  # noqa: ANN401
    if not fits:
        raise ValueError(f"not {what}")
    return value
