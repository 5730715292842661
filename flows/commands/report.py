"""`reelabel report`."""

from __future__ import annotations

from pathlib import Path

from flows.commands.opened import open_database
from flows.commands.target import require_parent_folder
from flows.commands.terminal import OUT, print_line
from infra.embedded import ServiceName
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from tasks.report.page import render
from tasks.report.report import gather
from tasks.results.runs import find_run


def write_report(run: str, *, out: str | None, job_ids: list[str]) -> None:
    """Write a run's report page, from its current rows.

    Raises:
        ConfigurationError: No such run, no such job in it, or the file cannot be written.
    """
    if out:
        require_parent_folder(out)
    with open_database(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        row = find_run(engine, run)
        if settings.store.uri is None:
            raise ConfigurationError("A report needs the store of the run's frames; set REELABEL_STORE_URI.")
        objects = ObjectStore(settings.store, settings.web)
        with OUT.status("Rendering the report"):
            page = render(gather(engine, objects, row, store_uri=settings.store.uri, job_ids=job_ids))
    target = Path(out or f"reelabel-{str(row['run_id'])[:8]}.html")
    target.write_text(page, encoding="utf-8")
    print_line(f"Wrote {target.absolute()}; open it in a browser.")
