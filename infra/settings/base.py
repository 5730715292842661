"""Base class of the sections of the settings, and a type of their fields."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import DataclassInstance
    from pydantic.fields import ComputedFieldInfo, FieldInfo

# Workers run in other folders, so a path must not depend on the current one.
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]
_UNITS = {"s": "seconds", "days": "days", "mib": "MiB", "px": "pixels"}


def title_of(name: str, _field: FieldInfo | ComputedFieldInfo | None = None) -> str:
    """Return the title of a field in forms: `max_gap_s` becomes "Max gap (seconds)"."""
    *words, last = name.split("_")
    title = " ".join([*words, last] if not words or last not in _UNITS else [*words, f"({_UNITS[last]})"])
    return title[:1].upper() + title[1:]


class SettingsSection(BaseModel):
    """A section of the settings; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, field_title_generator=title_of)


# Of a section that is a dataclass, because it extends options of the library; frozen by its decorator.
SECTION = ConfigDict(extra="forbid", field_title_generator=title_of)


def fields_of(section: type) -> Mapping[str, FieldInfo]:
    """Return the fields of a section, be it a model or a dataclass; none of what is no section."""
    found: Mapping[str, FieldInfo] = getattr(section, "__pydantic_fields__", {})
    return found


def library_field(kind: type[DataclassInstance], name: str, **other: Any) -> Any:  # noqa: ANN401 - as pydantic's
    """Return the field for an option of the library, with its description and its bounds, or others in their place."""
    about = {key: value for each in fields(kind) if each.name == name for key, value in each.metadata.items()} | other
    check, _ = about.pop("check"), about.pop("convert")
    info = Field(**about)
    if check is not None:
        info.metadata.append(AfterValidator(_unless_none(check)))
    return info


def _unless_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)
