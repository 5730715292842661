"""The page of any run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError
from tasks.domain import DescribeSpec
from tasks.report.page import render
from tasks.report.report import gather
from tasks.report.videos.gather import gather_videos
from tasks.report.videos.page import render_videos
from tasks.results.runs import read_any_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine, RowMapping

    from reelabel.frames.cache import FrameCache
    from reelabel.sources.object_store import ObjectStore


def page_of_run(
    engine: Engine, objects: ObjectStore, run: RowMapping, *, cache: FrameCache, job_ids: Sequence[str] = ()
) -> str:
    """Render the page of a run, by what it was for, with the named jobs in any case.

    Raises:
        ConfigurationError: A named job has no row, or too many jobs are named.
        TransientError: A service is unavailable.
    """
    try:
        spec = read_any_spec(engine, run["spec_id"])
    except ConfigurationError:  # written by another version
        spec = None
    if isinstance(spec, DescribeSpec):
        return render_videos(gather_videos(engine, objects, run, spec, cache=cache, job_ids=job_ids))
    return render(gather(engine, objects, run, spec, cache=cache, job_ids=job_ids))
