"""Renders the page of a run, and names the URIs of the page and of the list of rejected rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError
from tasks.domain import DescribeSpec
from tasks.results.runs import read_any_spec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from sqlalchemy import Engine, RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.sources.object_store import ObjectStore


def page_uri(store_uri: str, run_id: UUID) -> str:
    return f"{store_uri.rstrip('/')}/reports/{run_id}.html"


def rejected_uri(store_uri: str, run_id: UUID) -> str:
    """Return the URI of the list of rows that a run rejected."""
    return f"{store_uri.rstrip('/')}/reports/{run_id}.csv"


def page_link(base_url: str, run_id: UUID) -> str:
    """Return the web address of a run's report, if the store's folder `reports/` is served at `base_url`."""
    return f"{base_url.rstrip('/')}/{run_id}.html"


def page_of_run(
    engine: Engine, objects: ObjectStore, run: RowMapping, *, cache: FrameCache, job_ids: Sequence[str] = ()
) -> str:
    """Render the page of a run of questions or descriptions, always including the named jobs.

    Raises:
        ConfigurationError: A named job has no row, or too many jobs are named.
        TransientError: A service is unavailable.
    """
    # They import packages that other commands do not need.
    from tasks.report.run import load_run, render_run  # noqa: PLC0415
    from tasks.report.videos import load_videos, render_videos  # noqa: PLC0415

    try:
        spec = read_any_spec(engine, run["spec_id"])
    except ConfigurationError:  # written by another version
        spec = None
    if isinstance(spec, DescribeSpec):
        return render_videos(load_videos(engine, objects, run, spec, cache=cache, job_ids=job_ids))
    return render_run(load_run(engine, objects, run, spec, cache=cache, job_ids=job_ids))
