"""Faults of values in plain words instead of pydantic's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import InitErrorDetails, PydanticCustomError

from reelabel.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

# A JSON text of more parts, or with more faults, would take seconds and gigabytes to check, or to describe.
_MAX_COMMAS, _MAX_FAULTS = 100_000, 100
# By the type of the fault, or by its first word. https://docs.pydantic.dev/latest/errors/validation_errors/
_DESCRIBED = "described"
# An unknown field: of a model, of a dataclass.
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_CLAUSES = {
    **dict.fromkeys(UNKNOWN, "unknown option"),
    "missing": "is required",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_pattern_mismatch": "has the wrong format",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length:,} entries",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "none_required": "must be empty",
    "ip_any_network": "is not a network; write it as 10.1.0.0/16, with all host bits zero",
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
    "tuple": "must be a list",
    "set": "must be a list",
    "dict": "must be a group of options",
    "model": "must be a group of options",
    "dataclass": "must be a group of options",
    "datetime": "must be a time, such as 2026-11-01T02:00:00+01:00",
    "date": "must be a date, such as 2026-11-01",
    "path": "must be a path",
    "url": "must be a URL",
    "uuid": "must be a UUID",
}


def describe_fault(fault: ErrorDetails, clauses: Mapping[str, str] | None = None) -> str:
    """Describe one of the `errors()` of a ValidationError in a clause; `clauses` has others, by its type."""
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == _DESCRIBED:
        return fault["msg"]
    if kind in {"value_error", "assertion_error"}:
        error = context["error"]
        return error.faults[0].clause if isinstance(error, InvalidOptionError) else str(error)
    if kind in {"string_too_short", "too_short"} and context["min_length"] == 1:
        return "must not be empty"
    known = _CLAUSES | dict(clauses or {})
    return known.get(kind, known.get(kind.split("_")[0], "is not valid")).format_map(context)


def too_intricate(text: str | bytes) -> str | None:
    """Return a clause on why a JSON text from elsewhere should not be validated; None if it can be."""
    commas = text.count(",") if isinstance(text, str) else text.count(b",")
    return f"has {commas:,} commas; {_MAX_COMMAS:,} are allowed" if commas > _MAX_COMMAS else None


def too_many_faults(error: ValidationError) -> str | None:
    """Return a clause on faults that are too many to be named; None if they can be."""
    count = error.error_count()
    return f"has {count:,} faults, too many to name" if count > _MAX_FAULTS else None


def first_fault(error: ValidationError) -> tuple[str, object, str]:
    """Return where the first fault is, empty if it concerns several values; the value; and a clause about it."""
    fault = error.errors()[0]
    return ".".join(str(part) for part in fault["loc"]), fault["input"], describe_fault(fault)


def _describe_faults(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:  # noqa: ANN401 - any type
    try:
        return validate(value)
    except ValidationError as error:
        faults = [
            InitErrorDetails(
                type=PydanticCustomError(_DESCRIBED, "{clause}", {"clause": describe_fault(fault)}),
                loc=fault["loc"],
                input=fault["input"],
            )
            for fault in error.errors()
        ]
        raise ValidationError.from_exception_data(error.title, faults) from None


# Annotation of a type that others validate, and whose errors they print.
PLAIN_WORDS = WrapValidator(_describe_faults)
