"""`--dry-run` of `classify` and `backfill`."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from rich.padding import Padding

from flows.cli.console import OUT, cell, print_line, print_notice
from flows.cli.context import running_services, startup_errors
from flows.cli.survey import progress
from infra.embedded import ServiceName, export
from tasks.database.schema import prepare_database

if TYPE_CHECKING:
    from flows.cli.runs.classify import ClassifyOptions
    from flows.run.forecast import Forecast
    from flows.run.request import BackfillRequest
    from infra.settings import Settings


def forecast_classify(options: ClassifyOptions) -> int:
    """Print what `classify` would answer, what its videos are, and what it costs; return the exit code of the run."""
    videos = options.find_videos()
    with running_services(ServiceName.POSTGRES, ServiceName.S3) as settings:
        with startup_errors():
            prepare_database(settings.database)
        os.environ.update(export(settings))
        from flows.run.flow_run import render_request  # noqa: PLC0415 - Prefect reads its environment
        from flows.run.forecast import forecast  # noqa: PLC0415
        from flows.run.questions import prepare_questions  # noqa: PLC0415

        request = render_request(options.request(options.manifest_uri(videos, settings)), None)
        with progress() as note:
            found = forecast(request, settings, prepare_questions, host=socket.gethostname(), note=note)
    code = _print(found, again=options.command)
    return 1 if videos and videos.left_out else code


def forecast_backfill(request: BackfillRequest, settings: Settings, *, is_here: bool, again: str) -> int:
    """Print what `backfill` would answer; return the exit code of the run."""
    os.environ.update(export(settings))
    from flows import runs  # noqa: PLC0415 - Prefect reads its environment

    with progress() as note:
        found = runs.forecast_backfill(request, settings, is_here=is_here, note=note)
    return _print(found, again=again)


def _print(found: Forecast, *, again: str) -> int:
    for warning in found.warnings:
        print_notice(f"{warning}.")
    for line in found.lines:
        print_line(line)
    for line in found.videos:
        OUT.print(Padding(cell(line), (0, 0, 0, 2)))
    if found.jobs:
        print_line(f"To answer them: {again}")
    return 0 if found.ends_well else 1
