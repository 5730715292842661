"""Base class of the sections of the settings, and a type of their fields."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

if TYPE_CHECKING:
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
