"""Surveys a manifest by the settings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.errors import ManifestError
from reelabel.cores import usable_cores
from reelabel.frames.fetch import VideoReader
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.pool import decode_pool, frame_cache, video_limits, video_store
from tasks.manifest.table import open_jobs
from tasks.survey.clips import draw_clips
from tasks.survey.cost import cut_seen
from tasks.survey.measure import measure_rates
from tasks.survey.read import read_clips
from tasks.survey.survey import compile_survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.settings import Settings
    from reelabel.pool.decode_pool import DecodePool
    from reelabel.sampling.options import Sampling
    from tasks.survey.clips import ManifestClips
    from tasks.survey.survey import Survey

    # Receives the current step, and the numbers done and in all.
    Note = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyOptions:
    sample: int | None = None  # number of clips to draw at random; None surveys all
    limit_s: float | None = None  # seconds after which no further video is started; None is no limit
    measure_s: float = 10.0  # seconds after which no further clip is extracted to measure this machine's rates
    keep_going: bool = False  # whether to leave out invalid rows of the manifest
    chunk_s: float | None = None  # seconds of the run's chunks; None cuts none


def note_nothing(_what: str, _done: int, _of: int) -> None: ...


def take_survey(
    manifest: str,
    settings: Settings,
    sampling: Sampling,
    options: SurveyOptions,
    *,
    note: Note = note_nothing,
) -> Survey:
    """Survey the indexes of a manifest's videos, which are cached for the run that follows.

    Raises:
        ManifestError: The manifest is invalid, or no video was surveyed within the time limit.
    """
    note("Reading the manifest", 0, 0)
    with open_jobs(manifest, ObjectStore(settings.store, settings.web), keep_going=options.keep_going) as jobs:
        drawn = draw_clips(jobs, options.sample)
    survey = survey_clips(manifest, drawn, settings, sampling, options, note=note)
    if survey is None:
        raise ManifestError(
            f"No video of {manifest} was surveyed within {options.limit_s:g} s; allow more time, or check the store."
        )
    return survey


def survey_clips(
    manifest: str,
    drawn: ManifestClips,
    settings: Settings,
    sampling: Sampling,
    options: SurveyOptions,
    *,
    note: Note = note_nothing,
) -> Survey | None:
    """Survey drawn clips as `take_survey` does; None if no video was surveyed within the time limit."""
    processes = settings.extract.processes or usable_cores()
    with decode_pool(settings, processes=processes) as pool:
        reader = index_reader(settings, pool)
        started = time.monotonic()
        seen = read_clips(
            drawn.drawn,
            reader,
            limit_s=options.limit_s,
            note=lambda done: note("Reading indexes", done, len(drawn.drawn)),
        )
        took_s = time.monotonic() - started
        if not seen:
            return None
        note("Measuring this machine", 0, 0)
        rates = measure_rates(
            seen,
            reader,
            sampling,
            processes=processes,
            encoding=settings.store.encoding,
            limit_s=options.measure_s,
        )
    if options.chunk_s is not None:
        seen = [cut_seen(each, chunk_s=options.chunk_s, limits=video_limits(settings)) for each in seen]
    return compile_survey(
        manifest, drawn, seen, sampling, rates=rates, took_s=took_s, per_cpu_hour=settings.cost.per_cpu_hour
    )


def index_reader(settings: Settings, pool: DecodePool) -> VideoReader:
    """Return a reader of indexes, which caches them if there is a frame cache."""
    return VideoReader(
        objects=video_store(settings),
        pool=pool,
        limits=video_limits(settings),
        cache=frame_cache(settings) if settings.store.uri else None,
    )
