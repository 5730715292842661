"""Secrets that stand elsewhere than in the settings: in files, and in blocks of Prefect's.

`REELABEL_DATABASE_URL_FILE` names a file with what `REELABEL_DATABASE_URL` would hold, and so for every secret. A
secret of the form `prefect://NAME` is what Prefect's Secret block of that name holds.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from urllib.parse import quote

from pydantic import BaseModel, SecretStr

from infra.errors import ConfigurationError
from infra.login import login_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

Model = TypeVar("Model", bound=BaseModel)

_FILE = "_FILE"
_BLOCK = "prefect://"
_TIMEOUT_S = 30


def file_variables(model: type[BaseModel], *, prefix: str) -> dict[str, tuple[str, str]]:
    """Map the variables that may name a secret's file to the secret's section and field."""
    return {
        f"{prefix}{section}_{field}{_FILE}".upper(): (section, field)
        for section, content in model.model_fields.items()
        if isinstance(content.annotation, type) and issubclass(content.annotation, BaseModel)
        for field, info in content.annotation.model_fields.items()
        if _is_secret(info)
    }


def read_files(variables: Mapping[str, tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Read the files that are named in the environment; gives their text by section and field.

    Raises:
        ConfigurationError: One cannot be read.
    """
    found: dict[str, dict[str, str]] = {}
    for variable in variables.keys() & os.environ.keys():
        section, field = variables[variable]
        try:
            text = Path(os.environ[variable]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise ConfigurationError(f"{variable} names {os.environ[variable]}, but: {reason}.") from None
        found.setdefault(section, {})[field] = text.rstrip("\r\n")
    return found


def with_blocks(settings: Model, *, api_url: str | None, auth_string: SecretStr | None) -> Model:
    """Put what Prefect's blocks hold in the place of their names.

    Raises:
        ConfigurationError: No Prefect is set, it does not answer, or it has no such block.
    """
    updates: dict[str, Any] = {}
    for section, content in settings:
        if isinstance(content, BaseModel):
            named = _named(content)
            held = {field: _load(f"{section}.{field}", block, api_url, auth_string) for field, block in named}
            if held:
                updates[section] = content.model_copy(update=held)
    return settings.model_copy(update=updates) if updates else settings


def _named(section: BaseModel) -> Iterator[tuple[str, str]]:
    for field, value in section:
        if isinstance(value, SecretStr) and value.get_secret_value().startswith(_BLOCK):
            yield field, value.get_secret_value().removeprefix(_BLOCK)


@cache
def _load(setting: str, block: str, api_url: str | None, auth_string: SecretStr | None) -> SecretStr:
    """Ask Prefect once in a process's life.

    Not by its own client: that reads its environment as it is imported, and the settings are what fill it.
    """
    import httpx  # noqa: PLC0415 - most processes need none

    api_url = api_url or os.environ.get("PREFECT_API_URL")
    if api_url is None:
        raise ConfigurationError(f"{setting} is {_BLOCK}{block}, but no Prefect is set; set prefect.api_url.")
    url = f"{api_url.rstrip('/')}/block_types/slug/secret/block_documents/name/{quote(block, safe='')}"
    try:
        answer = httpx.get(url, params={"include_secrets": "true"}, headers=_login(auth_string), timeout=_TIMEOUT_S)
        if answer.status_code == httpx.codes.NOT_FOUND:
            raise ConfigurationError(
                f"{setting} is {_BLOCK}{block}, but Prefect has no block of the type Secret by that name; make one."
            )
        return SecretStr(str(answer.raise_for_status().json()["data"]["value"]))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        reason = f"HTTP {answer.status_code}" if isinstance(error, httpx.HTTPStatusError) else str(error)
        raise ConfigurationError(f"{setting} is {_BLOCK}{block}, but Prefect does not give it: {reason}.") from None


def _login(auth_string: SecretStr | None) -> dict[str, str]:
    """Log in as Prefect's own client would."""
    key = os.environ.get("PREFECT_API_KEY")
    return {"Authorization": f"Bearer {key}"} if key else login_headers(auth_string)


def _is_secret(info: FieldInfo) -> bool:
    return SecretStr in {info.annotation, *get_args(info.annotation)}
