"""Records: dataclasses whose fields state the column that stores them, its comment, and how to merge two values."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

_RULE, _COLUMN, _BITS, _DESCRIPTION = "merge", "column", "bits", "description"


class Json(str):
    """A text that is a JSON value; its column holds JSON."""

    __slots__ = ()


class Merge(StrEnum):
    """How to merge the values of two records, of which one was made after the other."""

    SUM = "sum"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumn:
    """A column that stores a field; integers have 16, 32 or 64 bits."""

    name: str
    attribute: str
    type: type
    bits: int
    description: str


def merged(rule: Merge, *, default: Any = MISSING) -> Any:  # noqa: ANN401 - as of `field`
    """Return a field without a column of its own."""
    return field(default=default, metadata={_RULE: rule})


def column(
    rule: Merge,
    description: str,
    *,
    default: Any = MISSING,  # noqa: ANN401 - as of `field`
    name: str = "",
    bits: int = 32,
) -> Any:  # noqa: ANN401 - as of `field`
    """Return a field with its column's comment and name, by default its own; `bits` (16, 32, 64) are of integers."""
    return field(default=default, metadata={_RULE: rule, _COLUMN: name, _BITS: bits, _DESCRIPTION: description})


@lru_cache
def columns_of(record: type[DataclassInstance]) -> tuple[RecordColumn, ...]:
    """Return the columns of a record in the order of its fields; raise TypeError if one cannot be stored."""
    _rules_of(record)
    types = get_type_hints(record)
    return tuple(
        RecordColumn(
            name=each.metadata[_COLUMN] or each.name,
            attribute=each.name,
            type=_scalar(record, each.name, types[each.name]),
            bits=each.metadata[_BITS],
            description=each.metadata[_DESCRIPTION],
        )
        for each in fields(record)
        if _COLUMN in each.metadata
    )


@lru_cache
def reader_of(record: type[DataclassInstance]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that returns a record's values in the order of `columns_of`."""
    first, second, *others = (each.attribute for each in columns_of(record))
    return attrgetter(first, second, *others)  # of one name, it would return no tuple


def names_of(*records: type[DataclassInstance]) -> tuple[str, ...]:
    """Return the names of the columns of records, one record after the other."""
    return tuple(each.name for record in records for each in columns_of(record))


def values_of(record: type[DataclassInstance], value: DataclassInstance | None) -> tuple[Any, ...]:
    """Return the values of the columns `names_of(record)`; nulls for None."""
    return (None,) * len(columns_of(record)) if value is None else reader_of(record)(value)


def merge_records(first: Record, second: Record) -> Record:
    """Merge two records, of which `second` was made later; raise TypeError if a field has no rule."""
    values = {
        Merge.LAST: lambda name: getattr(second, name),
        Merge.SUM: lambda name: getattr(first, name) + getattr(second, name),
    }
    return replace(second, **{name: values[rule](name) for name, rule in _rules_of(type(second)).items()})


def without_sums(record: Record) -> Record:
    """Set the fields that are summed to 0, so that the costs of a copy are not counted twice."""
    rules = _rules_of(type(record)).items()
    return replace(record, **dict.fromkeys((name for name, rule in rules if rule == Merge.SUM), 0))


@lru_cache
def _rules_of(record: type[DataclassInstance]) -> dict[str, Merge]:
    rules: dict[str, Merge] = {each.name: each.metadata[_RULE] for each in fields(record) if _RULE in each.metadata}
    if missing := [each.name for each in fields(record) if each.name not in rules]:
        raise TypeError(
            f"{record.__name__}.{missing[0]} does not say how to merge two of its values; "
            "make it a column(Merge....), or merged(Merge....) if no column stores it."
        )
    return rules


def _scalar(record: type[DataclassInstance], name: str, hint: Any) -> type:  # noqa: ANN401 - of `typing`
    """Return the type of a field's values, without None."""
    found: set[type] = {*(get_args(hint) if isinstance(hint, UnionType) else (hint,))} - {NoneType}
    if len(found) != 1 or not found <= {str, bool, int, float, Json}:
        raise TypeError(
            f"{record.__name__}.{name} is a {hint}; a column stores a str, bool, int, float or Json, or None."
        )
    return found.pop()
