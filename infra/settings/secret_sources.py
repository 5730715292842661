"""Secrets from files and from Prefect blocks.

`REELABEL_DATABASE_URL_FILE` names a file with the value of `REELABEL_DATABASE_URL`; the same holds for every secret.
A secret `prefect://NAME` is read from the Prefect Secret block of that name.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from infra.basic_auth import basic_auth_headers
from infra.settings.base import fields_of
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

Model = TypeVar("Model", bound=BaseModel)

_FILE = "_FILE"
_BLOCK = "prefect://"
_TIMEOUT_S = 30


def file_variables(model: type[BaseModel], *, prefix: str) -> dict[str, tuple[str, str]]:
    """Return the variables that can name a file, with the section and field of their secret."""
    return {
        f"{prefix}{section}_{field}{_FILE}".upper(): (section, field)
        for section, content in model.model_fields.items()
        if isinstance(content.annotation, type)
        for field, info in fields_of(content.annotation).items()
        if is_secret(info)
    }


def read_secret_files(variables: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Read the files named in the environment, and return their content by section and field.

    Raises:
        ConfigurationError: A file cannot be read.
    """
    found: dict[str, dict[str, str]] = {}
    for variable in variables.keys() & os.environ.keys():
        section, field = variables[variable]
        try:
            text = Path(os.environ[variable]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a text file"
            raise ConfigurationError(f"{variable}: cannot read {os.environ[variable]}: {reason}.") from None
        found.setdefault(section, {})[field] = text.rstrip("\r\n")
    return found


def resolve_blocks(settings: Model, *, api_url: str | None, auth_string: SecretStr | None) -> Model:
    """Replace references to Prefect blocks by their values.

    Raises:
        ConfigurationError: Prefect is not configured, does not respond, or has no such block.
    """
    updates: dict[str, Any] = {}
    for section, content in settings:
        held = {field: _load(f"{section}.{field}", block, api_url, auth_string) for field, block in _named(content)}
        if held:
            is_model = isinstance(content, BaseModel)
            updates[section] = content.model_copy(update=held) if is_model else replace(content, **held)
    return settings.model_copy(update=updates) if updates else settings


def is_block(secret: SecretStr) -> bool:
    """Return whether a secret is a reference to a Prefect block."""
    return secret.get_secret_value().startswith(_BLOCK)


def _named(section: object) -> Iterator[tuple[str, str]]:
    for field in fields_of(type(section)):
        value = getattr(section, field)
        if isinstance(value, SecretStr) and is_block(value):
            yield field, value.get_secret_value().removeprefix(_BLOCK)


@cache
def _load(setting: str, block: str, api_url: str | None, auth_string: SecretStr | None) -> SecretStr:
    """Fetch a block from Prefect, once per process.

    Prefect's client cannot be used: it reads its environment on import, before the settings can fill it.
    """
    import httpx  # noqa: PLC0415 - most processes do not need it

    api_url = api_url or os.environ.get("PREFECT_API_URL")
    if api_url is None:
        raise ConfigurationError(f"{setting} is {_BLOCK}{block}, but Prefect is not configured; set prefect.api_url.")
    url = f"{api_url.rstrip('/')}/block_types/slug/secret/block_documents/name/{quote(block, safe='')}"
    try:
        response = httpx.get(url, params={"include_secrets": "true"}, headers=_login(auth_string), timeout=_TIMEOUT_S)
        if response.status_code == httpx.codes.NOT_FOUND:
            raise ConfigurationError(
                f"{setting} is {_BLOCK}{block}, but Prefect has no Secret block of that name; create it."
            )
        return SecretStr(str(response.raise_for_status().json()["data"]["value"]))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        reason = f"HTTP {response.status_code}" if isinstance(error, httpx.HTTPStatusError) else str(error)
        raise ConfigurationError(
            f"{setting} is {_BLOCK}{block}, but the request to Prefect failed: {reason}."
        ) from None


def _login(auth_string: SecretStr | None) -> dict[str, str]:
    """Return the same login headers as Prefect's client."""
    key = os.environ.get("PREFECT_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else basic_auth_headers(auth_string)


def is_secret(info: FieldInfo) -> bool:
    """Return whether a setting is a secret, whose value must not be shown."""
    return SecretStr in {info.annotation, *get_args(info.annotation)}
