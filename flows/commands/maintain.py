"""`reelabel maintain`."""

from __future__ import annotations

from flows.commands.opened import services
from flows.commands.scheduler import prefect_ready
from flows.commands.terminal import say
from infra.embedded import ServiceName


def maintain(*, dry_run: bool) -> None:
    """Apply the retention settings in this process, and print what was removed."""
    with services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings, prefect_ready(settings):
        from flows.maintain import keep_in_bounds  # noqa: PLC0415 - see prefect_ready

        for line in keep_in_bounds(settings, dry_run=dry_run):
            say(line)
