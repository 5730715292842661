"""`reelabel up`, `down`, `status`, `doctor` and `config`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tomli_w
from rich.console import Console
from rich.table import Table

from flows.commands.opened import services
from infra.embedded import ServiceName, export, status, stop
from infra.health import examine

if TYPE_CHECKING:
    from infra.settings import Settings

_CONSOLE = Console()


def start_services() -> None:
    """Start everything that the user has set no address for, and leave it running."""
    with services(*ServiceName, keep=True) as started:
        api_url = started.prefect.api_url or ""
    _CONSOLE.print(
        f"Running. Prefect's pages: {api_url.removesuffix('/api')}. Stop by `reelabel down`.", soft_wrap=True
    )


def deploy_all() -> None:
    """Create or update the deployments on the user's Prefect, or on the embedded one."""
    with services(ServiceName.PREFECT) as started:
        os.environ.update(export(started))
        from flows.deploy import deploy_flows  # noqa: PLC0415 - Prefect reads its environment when it is imported

        for name in deploy_flows(started):
            _CONSOLE.print(f"Deployed {name} to work pool {started.prefect.work_pool}.")
        nightly = started.nightly.manifest
    if nightly is None:
        _CONSOLE.print("classify/nightly is paused: set nightly.manifest, then deploy again.")


def stop_services(settings: Settings) -> None:
    """Stop the embedded services."""
    stop(settings.home)
    _CONSOLE.print(f"Stopped. Data stay in {settings.home}.", soft_wrap=True)


def print_status(settings: Settings) -> None:
    """List the embedded services."""
    table = Table("service", "state", "address", "log")
    for service in status(settings.home):
        state = f"running ({service.pid})" if service.is_running else "stopped"
        table.add_row(service.name.value, state, service.address or "", str(service.log))
    _CONSOLE.print(table)


def print_checks(settings: Settings) -> int:
    """Print every check; gives the exit code."""
    faults = 0
    for check in examine(settings):
        faults += not check.ok
        mark = "[green]ok[/green]  " if check.ok else "[red]fault[/red]"
        advice = f" {check.advice}" if check.advice and not check.ok else ""
        _CONSOLE.print(f"{mark} {check.name}: {check.detail}{advice}", soft_wrap=True)
    return 2 if faults else 0


def print_settings(settings: Settings) -> None:
    """Print the effective settings as TOML; fields without a value are comments."""
    values = settings.model_dump(mode="json")
    sections = {name: value for name, value in values.items() if isinstance(value, dict)}
    print(tomli_w.dumps({"home": str(settings.home)}), end="")  # noqa: T201 - may be saved as a file
    for name, fields in sections.items():
        print(f"\n[{name}]")  # noqa: T201
        model = type(getattr(settings, name))
        for field, value in fields.items():
            description = model.model_fields[field].description
            text = f"# {field} =" if value is None else tomli_w.dumps({field: value}).strip()
            print(f"{text}  # {description}")  # noqa: T201
