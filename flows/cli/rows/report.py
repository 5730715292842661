"""`reelabel report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import OUT, print_line, require_parent_folder, write_output
from flows.cli.context import find_run, open_database
from flows.cli.options import Run, example
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.pool import frame_cache
from tasks.frame_cache.sealed_files import SealedFiles
from tasks.live.record.saved import find_session
from tasks.report.live import load_session, render_session
from tasks.report.pages import page_of_run
from tasks.results.runs import short_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from infra.settings import Settings


@example("reelabel report last --out run.html")
def report(
    run: Run = "last",
    out: Annotated[
        str | None, typer.Option(help="File to write. Default: reelabel-RUN.html in the current folder.")
    ] = None,
    job: Annotated[list[str] | None, typer.Option(help="Job id that the page must include; repeatable.")] = None,
    session: Annotated[
        str | None, typer.Option(help="Instead of a run, a live session: its id, a prefix of it, or 'last'.")
    ] = None,
) -> None:
    """Write a self-contained HTML page about a run."""
    if session is not None and (run != "last" or job):
        raise ConfigurationError("--session takes no run and no --job.")
    if out:
        require_parent_folder(out)
    with open_database(store=True) as (settings, engine):
        name, page = (
            _of_run(engine, settings, run, job or ()) if session is None else _of_session(engine, settings, session)
        )
    target = Path(out or f"reelabel-{name}.html")
    write_output(target, page)
    print_line(f"Wrote {target.absolute()}; open it in a browser.")


def _of_run(engine: Engine, settings: Settings, run: str, job_ids: Sequence[str]) -> tuple[str, str]:
    row = find_run(engine, run)
    _require_store(settings, "run")
    objects = ObjectStore(settings.store, settings.web)
    with OUT.status("Rendering the report"):
        page = page_of_run(engine, objects, row, cache=frame_cache(settings), job_ids=job_ids)
    return short_ids(engine, [row["run_id"]])[row["run_id"]], page


def _of_session(engine: Engine, settings: Settings, session: str) -> tuple[str, str]:
    stored = find_session(engine, session)
    _require_store(settings, "session")
    with OUT.status("Rendering the report"):
        page = render_session(load_session(engine, stored, SealedFiles.of(settings.store)))
    return f"live-{str(stored.row['session_id'])[:8]}", page


def _require_store(settings: Settings, of: str) -> None:
    if settings.store.uri is None:
        raise ConfigurationError(f"A report needs the store of the {of}'s frames; set REELABEL_STORE_URI.")
