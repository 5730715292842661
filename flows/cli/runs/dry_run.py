"""`reelabel classify --dry-run`: what a run would answer, by a short survey of its videos."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rich.padding import Padding

from flows.cli.console import OUT, cell, print_line, print_notice
from flows.cli.context import running_services, startup_errors
from flows.cli.survey import progress
from infra.database.connect import Role, connected
from infra.embedded import ServiceName, export
from infra.program import command
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.schema import prepare_database
from tasks.database.scope import Scope
from tasks.domain import RunSpec, WallClockProfile
from tasks.frame_cache.fingerprints import current_fingerprints
from tasks.frame_cache.pool import video_store
from tasks.manifest.dataset import dataset_name
from tasks.manifest.table import open_jobs
from tasks.results.audit import audit_jobs
from tasks.results.forecast import past_pace
from tasks.results.pending import pending_jobs
from tasks.survey.clips import draw_clips
from tasks.survey.describe import amount, duration, headlines
from tasks.survey.take import SurveyOptions, survey_clips

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from flows.cli.runs.classify import ClassifyOptions
    from flows.run.request import ClassifyRequest
    from infra.settings import Settings
    from tasks.manifest.table import JobTable
    from tasks.survey.clips import ManifestClips
    from tasks.survey.survey import Survey

# A look, not the whole survey: no manifest is so large, and no store so slow, that it takes longer than half a minute.
_LOOK = SurveyOptions(sample=300, limit_s=15.0, measure_s=5.0)


class _Forecast(NamedTuple):
    """What a run would do.

    Attributes:
        lines: Sentences on its jobs.
        has_jobs: Whether it would answer any.
        survey: Of their videos; None if there are none, or none was looked at in time.
        ends_well: Whether it would end with exit code 0.
    """

    lines: list[str]
    has_jobs: bool
    survey: Survey | None
    ends_well: bool


def forecast_classify(options: ClassifyOptions) -> int:
    """Print what `classify` would answer, what its videos are, and what it costs; return the exit code.

    Returns:
        1 if the run will end so: it leaves rows or failed jobs out, or videos of the clips that were looked at cannot
        be used; otherwise 0.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: The run would be refused, or a service is unreachable.
    """
    videos = options.find_videos()
    with running_services(ServiceName.POSTGRES, ServiceName.S3) as settings:
        with startup_errors():
            prepare_database(settings.database)
        os.environ.update(export(settings))
        from flows.run.flow_run import render_request  # noqa: PLC0415 - Prefect reads its environment

        manifest = options.manifest_uri(videos, settings)
        found = _forecast(render_request(options.request(manifest), None), settings)
    for line in found.lines:
        print_line(line)
    if found.survey:
        _print(found.survey)
    elif found.has_jobs:
        print_line(
            f"No video was looked at within {_LOOK.limit_s:g} s, which a busy machine or a slow store may take; to "
            f"look for longer: {command('manifest survey', manifest, keep_going=options.keep_going)}"
        )
    if found.has_jobs:
        print_line(f"To answer them: {options.command}")
    return 0 if found.ends_well and not (videos and videos.left_out) else 1


def _forecast(request: ClassifyRequest, settings: Settings) -> _Forecast:
    from flows.run.execute import reject_reused_ids  # noqa: PLC0415 - Prefect reads its environment
    from flows.run.questions import prepare_questions  # noqa: PLC0415

    objects = ObjectStore(settings.store, settings.web)
    with (
        connected(settings.database, Role.READER) as engine,
        open_jobs(request.manifest, objects, keep_going=request.keep_going) as jobs,
        progress() as note,
        prepare_questions(request, settings, jobs, engine, WallClockProfile()) as prepared,
    ):
        note("Reading the manifest", 0, 0)
        spec = prepared.spec
        assert isinstance(spec, RunSpec)
        reject_reused_ids(engine, request, jobs, describes=False)
        for warning in prepared.warnings:
            print_notice(f"{warning}.")
        scope = Scope(dataset=request.dataset or dataset_name(request.manifest), spec_id=spec.spec_id)
        wanted = jobs if request.force else _pending(jobs, engine, settings, scope)
        failures = _count_failures(jobs.chosen(~wanted.here), engine, scope)
        drawn = draw_clips(wanted, _LOOK.sample) if len(wanted) else None
        look = replace(_LOOK, chunk_s=spec.chunk_s)
        survey = survey_clips(request.manifest, drawn, settings, spec.sampling, look, note=note) if drawn else None
        return _Forecast(
            lines=list(_lines(jobs, drawn, engine, scope, spec, failures=failures)),
            has_jobs=drawn is not None,
            survey=survey,
            ends_well=not (failures or len(jobs.rejects) or (survey and survey.failed)),
        )


def _pending(jobs: JobTable, engine: Engine, settings: Settings, scope: Scope) -> JobTable:
    fingerprints_of = partial(current_fingerprints, video_store(settings))
    return pending_jobs(engine, scope, jobs=jobs, fingerprints_of=fingerprints_of)


def _count_failures(standing: JobTable, engine: Engine, scope: Scope) -> int:
    """Count the jobs that will not be asked again because they failed, as the run's summary does."""
    if not len(standing):
        return 0
    return audit_jobs(engine, scope, jobs=standing.parts()).failures


def _lines(
    jobs: JobTable, drawn: ManifestClips | None, engine: Engine, scope: Scope, spec: RunSpec, *, failures: int
) -> Iterator[str]:
    """Yield sentences on the jobs: how many, and for how long past runs would answer those that are drawn.

    `failures` is how many have a lasting failure, and are not asked again.
    """
    wanted = drawn.jobs if drawn else 0
    videos = pluralize(drawn.videos, "video") if drawn else "0 videos"
    yield f"Would answer {pluralize(wanted, 'job')} on {videos} of {scope.dataset}."
    if standing := len(jobs) - wanted:
        yield f"Skipping {pluralize(standing, 'job')} already ended; --force includes those with a label."
    if failures:
        yield f"{failures:,} of these failed, so that the run ends with exit code 1."
    if wanted and spec.chunk_s is not None:
        yield f"Each job is asked about in chunks of {spec.chunk_s:g} s, by the rule {spec.chunk_rule}."
    if rejected := len(jobs.rejects):
        yield f"Leaving out {pluralize(rejected, 'invalid row')}, so that the run ends with exit code 1."
    host = socket.gethostname()
    pace = past_pace(engine, scope, host=host)
    if wanted and pace.jobs:
        based = f"by {pluralize(pace.jobs, 'job')} of past runs with this spec on {host}"
        yield f"Answering: about {duration(pace.duration_s(wanted))}, {based}."


def _print(survey: Survey) -> None:
    for line in headlines(survey):
        OUT.print(Padding(cell(line), (0, 0, 0, 2)))
    for name, text in amount(survey):
        OUT.print(Padding(cell(f"{name}: {text}"), (0, 0, 0, 2)))
