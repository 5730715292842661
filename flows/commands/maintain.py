"""`reelabel maintain`."""

from __future__ import annotations

from flows.commands.opened import running_services
from flows.commands.scheduler import prefect_ready
from flows.commands.terminal import print_line
from infra.embedded import ServiceName


def maintain(*, dry_run: bool) -> None:
    """Apply the retention settings in this process, and print what was removed."""
    with (
        running_services(ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT) as settings,
        prefect_ready(settings),
    ):
        from flows.maintain import apply_retention  # noqa: PLC0415 - see prefect_ready

        for line in apply_retention(settings, dry_run=dry_run):
            print_line(line)
