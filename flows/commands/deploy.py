"""`reelabel deploy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from flows.commands.opened import running_services
from flows.commands.scheduler import prefect_ready
from flows.commands.terminal import print_line
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.schedule_settings import NightlySettings

if TYPE_CHECKING:
    from infra.settings import Settings


def deploy_all(nightly: dict[str, str]) -> None:
    """Create or update the deployments on the user's Prefect server, or on the embedded one.

    Args:
        nightly: Fields that override those of the settings section `nightly`.
    """
    with running_services(ServiceName.PREFECT) as started, prefect_ready(started):
        from flows.deploy import deploy_flows  # noqa: PLC0415 - see prefect_ready

        settings = with_nightly(started, nightly)
        for name, pool in deploy_flows(settings).items():
            print_line(f"Deployed {name} to work pool {pool}.")
    if settings.nightly.manifest is None:
        print_line(
            "classify/nightly is paused: it has no manifest. Use --manifest, or set nightly.manifest and deploy again."
        )


def with_nightly(settings: Settings, nightly: dict[str, str]) -> Settings:
    """Override fields of the section `nightly`.

    Raises:
        ConfigurationError: A value is invalid; the message names its option.
    """
    try:
        section = NightlySettings.model_validate(settings.nightly.model_dump() | nightly)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-")
        raise ConfigurationError(f"--{option}: {fault['msg'].removeprefix('Value error, ')}.") from None
    return settings.model_copy(update={"nightly": section})
