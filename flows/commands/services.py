"""`reelabel up`, `down`, `doctor` and `config`."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import tomli_w

from flows.commands.opened import at_start, services
from flows.commands.terminal import say
from flows.engine_config import engine_config
from infra.embedded import ServiceName, attached, in_use, login_path, stop
from infra.errors import ConfigurationError, ReelabelError
from infra.health import examine, probe_store
from infra.objects import ObjectStore
from infra.settings import load_settings
from sql.migrate import head
from tasks.model.health import check_engine, check_tuning
from tasks.model.identity import read_model_card
from tasks.results.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infra.health import Check
    from infra.settings import Settings

_WELL, _WARNING, _FAULT = ("ok   ", "green"), ("warn ", "yellow"), ("fault", "red")
# A slash should be percent-encoded; where it is not, what might be a password goes, but no port before a path.
_PASSWORD = re.compile(r"(://[^/@:]*:)(?:[^@/]*|(?!\d+/).*)@")


def start_services() -> None:
    """Start everything that the user has set no address for, and leave it running."""
    with services(*ServiceName, keep=True) as started:
        api_url = started.prefect.api_url or ""
    say(f"Running. Prefect's pages: {api_url.removesuffix('/api')} . Stop by `reelabel down`.")
    if load_settings().prefect.api_url is None:
        say(f"They ask for a login: it is what stands in {login_path(started.home)}.")


def prepare_places() -> None:
    """Bring the database to this version's schema, and make the bucket or folder of the store."""
    with services(ServiceName.POSTGRES, ServiceName.S3) as settings, at_start():
        prepare_database(settings.database)
        say(f"The database has schema {head()}.")
        assert settings.store.uri is not None
        ObjectStore(settings.store).ensure_root(settings.store.uri)
        say(f"{probe_store(settings.store)}.")


def stop_services(settings: Settings, *, force: bool) -> None:
    """Stop the embedded services.

    Raises:
        ConfigurationError: Another command is using them, and it was not forced.
    """
    if not force and in_use(settings.home):
        raise ConfigurationError(
            "Another command is using the services; wait for it, stop it by Ctrl-C, or take them away by --force.",
        )
    stop(settings.home)
    say(f"Stopped. Data stay in {settings.home}.")


def print_checks(settings: Settings) -> int:
    """Print every check; gives the exit code."""
    faults = 0
    for check in (*examine(attached(settings)), *check_engine(settings), *_engine_settings(settings)):
        faults += not check.ok
        mark = _FAULT if not check.ok else _WARNING if check.advice else _WELL
        advice = f" {check.advice}" if check.advice else ""
        say(mark, f" {check.name}: {check.detail}{advice}")
    return 2 if faults else 0


def _engine_settings(settings: Settings) -> Iterator[Check]:
    """Look at what an engine would be set to; nothing where none can be loaded, as a check before said, or needs be."""
    if settings.model.backend == "openai":
        return
    with suppress(ReelabelError):
        card = read_model_card(settings.model.name, revision=settings.model.revision)
        yield from check_tuning(engine_config(card, settings))


def print_settings(settings: Settings) -> None:
    """Print the effective settings as TOML; fields without a value are comments."""
    values = _without_passwords(settings.model_dump(mode="json"))
    sections = {name: value for name, value in values.items() if isinstance(value, dict)}
    print(tomli_w.dumps({"home": str(settings.home)}), end="")  # noqa: T201 - may be saved as a file
    for name, fields in sections.items():
        print(f"\n[{name}]")  # noqa: T201
        model = type(getattr(settings, name))
        for field, value in fields.items():
            description = model.model_fields[field].description
            text = f"# {field} =" if value is None else tomli_w.dumps({field: value}).strip()
            print(f"{text}  # {description}")  # noqa: T201


def _without_passwords(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Mask what stands between a URL's colon and its @; secrets of their own are masked already."""
    if isinstance(value, dict):
        return {name: _without_passwords(inner) for name, inner in value.items()}
    return _PASSWORD.sub(r"\1***@", value) if isinstance(value, str) else value
