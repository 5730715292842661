"""Types of the settings' fields: sections, paths, schedules, templates, and options of the library."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from infra.text_bounds import Text
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import NATIVE, dense_samplers, find_dense_sampler, find_sampler, samplers
from reelabel.sources.object_info import expand_home

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import DataclassInstance
    from pydantic import GetJsonSchemaHandler
    from pydantic.config import JsonDict
    from pydantic.fields import ComputedFieldInfo, FieldInfo
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

_UNITS = {"s": "seconds", "days": "days", "mib": "MiB", "px": "pixels"}
_CRON_FIELDS = {5, 6}
_PLACEHOLDERS = {"prompt", "choices"}
# Each makes the text longer by a whole prompt: a template of some kilobytes could fill the memory.
_MOST_PLACEHOLDERS = 16


def title_of(name: str, _field: FieldInfo | ComputedFieldInfo | None = None) -> str:
    """Return the title of a field in forms: `max_gap_s` becomes "Max gap (seconds)"."""
    *words, last = name.split("_")
    title = " ".join([*words, last] if not words or last not in _UNITS else [*words, f"({_UNITS[last]})"])
    return title[:1].upper() + title[1:]


class SettingsSection(BaseModel):
    """A section of the settings; unknown fields are rejected, and the text below a field is its description."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, field_title_generator=title_of, use_attribute_docstrings=True
    )


# Of a section that is a dataclass, because it extends options of the library; frozen by its decorator.
SECTION = ConfigDict(extra="forbid", field_title_generator=title_of, use_attribute_docstrings=True)


@dataclass(frozen=True)
class Section:
    """Of a field's annotation: the heading under which a command's help lists its options."""

    title: str


def fields_of(section: object) -> Mapping[str, FieldInfo]:
    """Return the fields of a section, a model or a dataclass; empty for any other type."""
    found: Mapping[str, FieldInfo] = getattr(section, "__pydantic_fields__", {})
    return found


def meaning_of(field: FieldInfo) -> str:
    """Return the description of a field on one line."""
    return " ".join((field.description or "").split())


def library_field(kind: type[DataclassInstance], name: str, **other: Any) -> Any:  # noqa: ANN401 - as pydantic's
    """Return the field for an option of the library, with its description and its bounds, or with others."""
    about = {key: value for each in fields(kind) if each.name == name for key, value in each.metadata.items()} | other
    check, _ = about.pop("check"), about.pop("convert")
    info = Field(**about)
    if check is not None:
        info.metadata.append(AfterValidator(_unless_none(check)))
    return info


def _unless_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def check_template(template: str) -> str:
    """Raise ValueError unless a template has {prompt} and {choices}, nothing else, and not too often; return it."""
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


def _check_timezone(timezone: str) -> str:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{timezone!r} is not a time zone; use a name such as Europe/Berlin") from None
    return timezone


def _check_cron(cron: str) -> str:
    if len(cron.split()) not in _CRON_FIELDS:
        raise ValueError(
            f"{cron!r} is not a cron schedule; write minute, hour, day, month and weekday, as in '0 2 * * *'"
        )
    return cron


def _check_login(login: SecretStr) -> SecretStr:
    user, _, password = login.get_secret_value().partition(":")
    if not user or not password:
        raise ValueError("write the login as user:password")
    return login


class _Enum:
    """Lists values in the JSON schema, which forms then offer; they are looked up when the schema is generated."""

    def __init__(self, values: Callable[[], list[str]]) -> None:
        self._values = values

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(schema) | {"enum": self._values()}


def absolute_if_exists(name: str | None) -> str | None:
    """Make the path of a file or folder absolute, as workers run in other folders; leave any other name alone."""
    path = expand_home(name) if name and "://" not in name else None
    exists = path and os.path.exists(path)  # noqa: PTH110 - accepts a name that is too long, unlike Path.exists
    return str(path.absolute()) if path and exists else name


# Workers run in other folders, so a path must not depend on the current one.
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]
Cron = Annotated[str, AfterValidator(_check_cron)]
Timezone = Annotated[
    str, Field(min_length=1), AfterValidator(_check_timezone), _Enum(lambda: sorted(available_timezones()))
]
# The flow that an arriving manifest starts, by its deployment `on-demand`.
Started = Literal["classify", "describe"]
Template = Annotated[Text, AfterValidator(check_template)]
Login = Annotated[SecretStr, AfterValidator(_check_login)]
Origin = Annotated[str, Field(pattern=r"^https?://[^/@]+$")]


def _list_samplers(schema: JsonDict) -> None:
    summaries = {NATIVE: "the one that the model was trained with"}
    summaries |= {name: spec.summary for name, spec in samplers().items()}
    listed = ", ".join(f"{name} ({summary})" for name, summary in summaries.items())
    schema["description"] = f"{schema['description']} One of {listed}."


def sampling_option(name: str, **other: Any) -> Any:  # noqa: ANN401 - pydantic's field
    """Return the field for an option of the library's `Sampling`; see `library_field`."""
    return library_field(Sampling, name, **other)


SamplerName = Annotated[
    str,
    AfterValidator(lambda name: name if name == NATIVE else find_sampler(name).name),
    _Enum(lambda: [NATIVE, *samplers()]),
]
DenseSamplerName = Annotated[
    str,
    AfterValidator(lambda name: name if name == NATIVE else find_dense_sampler(name).name),
    _Enum(lambda: [NATIVE, *dense_samplers()]),
]
SAMPLER_FIELD = sampling_option("sampler", check=None, json_schema_extra=_list_samplers)
