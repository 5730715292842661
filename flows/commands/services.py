"""`reelabel up`, `down`, `status`, `doctor` and `config`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import tomli_w
from rich.table import Table

from flows.commands.opened import services
from flows.commands.scheduler import prefect_ready
from flows.commands.terminal import OUT, say
from infra.embedded import ServiceName, attached, in_use, status, stop
from infra.errors import ConfigurationError
from infra.health import examine
from tasks.model.health import check_engine

if TYPE_CHECKING:
    from infra.settings import Settings

_WELL, _WARNING, _FAULT = ("ok   ", "green"), ("warn ", "yellow"), ("fault", "red")
_PASSWORD = re.compile(r"(://[^/@:]*:)[^@/]*@")


def start_services() -> None:
    """Start everything that the user has set no address for, and leave it running."""
    with services(*ServiceName, keep=True) as started:
        api_url = started.prefect.api_url or ""
    say(f"Running. Prefect's pages: {api_url.removesuffix('/api')} . Stop by `reelabel down`.")


def deploy_all() -> None:
    """Create or update the deployments on the user's Prefect, or on the embedded one."""
    with services(ServiceName.PREFECT) as started, prefect_ready(started):
        from flows.deploy import deploy_flows  # noqa: PLC0415 - see prefect_ready

        for name in deploy_flows(started):
            say(f"Deployed {name} to work pool {started.prefect.work_pool}.")
        nightly = started.nightly.manifest
    if nightly is None:
        say("classify/nightly is paused: set nightly.manifest, then deploy again.")


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


def print_status(settings: Settings) -> None:
    """List the embedded services."""
    table = Table("service", "state", "address")
    for service in status(settings.home):
        state = f"running ({service.pid})" if service.is_running else "stopped"
        table.add_row(service.name.value, state, service.address or "")
    OUT.print(table)
    say(f"Logs: {settings.home / 'logs'}")


def print_checks(settings: Settings) -> int:
    """Print every check; gives the exit code."""
    faults = 0
    for check in (*examine(attached(settings)), *check_engine(settings)):
        faults += not check.ok
        mark = _FAULT if not check.ok else _WARNING if check.advice else _WELL
        advice = f" {check.advice}" if check.advice else ""
        say(mark, f" {check.name}: {check.detail}{advice}")
    return 2 if faults else 0


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
