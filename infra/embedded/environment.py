"""Settings as environment variables, for other processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from infra.logs import PREFECT_JSON_LINES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.settings import Settings

_PREFIX = "REELABEL_"
# Sections that only `reelabel deploy` reads, where an unset field means: as deployed.
_DEPLOYED = ("nightly", "watch")


def export(settings: Settings) -> dict[str, str]:
    """Return all settings as environment variables, for processes that read no files; they hold passwords."""
    from infra.settings import CONFIG_VARIABLE, SECRETS_VARIABLE  # noqa: PLC0415 - the supervisor does without

    variables = {
        _PREFIX + name.upper(): value for section, content in settings for name, value in _flattened(section, content)
    }
    variables |= {CONFIG_VARIABLE: os.devnull, SECRETS_VARIABLE: "", "PYTHONSAFEPATH": "1"}
    if settings.prefect.api_url:
        variables["PREFECT_API_URL"] = settings.prefect.api_url
    if settings.prefect.auth_string:
        variables["PREFECT_API_AUTH_STRING"] = settings.prefect.auth_string.get_secret_value()
    if settings.log.format == "json":
        variables |= PREFECT_JSON_LINES
    return variables


def _flattened(name: str, value: object) -> Iterator[tuple[str, str]]:
    from pydantic import BaseModel, SecretStr  # noqa: PLC0415 - see export

    from infra.settings.types import fields_of  # noqa: PLC0415

    if fields := fields_of(type(value)):
        for field in fields:
            if isinstance(value, BaseModel) and name in _DEPLOYED and field not in value.model_fields_set:
                continue
            yield from _flattened(f"{name}_{field}", getattr(value, field))
    elif isinstance(value, SecretStr):
        yield name, value.get_secret_value()
    elif isinstance(value, Path):
        yield name, str(value.absolute())  # not resolved: the Python of an environment is a link
    elif isinstance(value, list | tuple | dict):
        yield name, json.dumps(value, default=str)
    elif value is not None:
        yield name, str(value)
