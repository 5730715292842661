"""Forecasts of runs, from their own checks and selection, past runs, and a survey of their videos."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flows.run.execute import open_run
from flows.run.plan import select_jobs
from flows.run.selection import describe_unknown_ids
from infra.program import command
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.domain import RunSpec
from tasks.domain.cost import format_price
from tasks.results.audit import audit_jobs
from tasks.results.overview import past_pace
from tasks.survey.clips import draw_clips
from tasks.survey.describe import amount, duration, headlines, unusable
from tasks.survey.take import SurveyOptions, note_nothing, survey_clips

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flows.run.plan import SelectedJobs
    from flows.run.run import Prepare, RequestT, Run
    from flows.run.selection import JobSelector
    from infra.settings import Settings
    from tasks.survey.clips import ManifestClips
    from tasks.survey.survey import Survey
    from tasks.survey.take import Note

# It takes at most half a minute, however large the manifest and slow the store.
_QUICK_SURVEY = SurveyOptions(sample=300, limit_s=15.0, measure_s=5.0)
_DESCRIBED_PX = 384 * 384


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run would do.

    Attributes:
        jobs: Number of jobs that it would answer.
        lines: Sentences on these jobs.
        videos: Sentences on their videos.
        warnings: Those of the run, without final periods.
        ends_well: Whether it would exit with 0, judging by the videos surveyed.
    """

    jobs: int
    lines: list[str]
    videos: list[str]
    warnings: tuple[str, ...]
    ends_well: bool

    def __str__(self) -> str:
        """Return all sentences."""
        return " ".join([*self.lines, *self.videos])


def forecast(
    request: RequestT,
    settings: Settings,
    prepare: Prepare[RequestT],
    *,
    selector: JobSelector | None = None,
    host: str | None,
    note: Note = note_nothing,
) -> Forecast:
    """Say what a run would do, and write nothing.

    `host` is this machine, if the run will be here; None is a run elsewhere, which may see other videos.
    """
    with open_run(request, settings, prepare, selector=selector) as run:
        note("Selecting jobs", 0, 0)
        selected = select_jobs(run)
        copies = run.prepared.duplicates.copies(selected.jobs) if run.prepared.duplicates else None
        to_ask = selected.jobs.chosen(~copies.here) if copies else selected.jobs
        drawn = draw_clips(to_ask, _QUICK_SURVEY.sample) if len(to_ask) else None
        failures = 0 if selector else _count_failures(run, selected)
        survey = _survey(run, drawn, note) if drawn and host else None
        rejected = 0 if selector else len(run.jobs.rejects)
        return Forecast(
            jobs=len(selected.jobs),
            lines=list(_lines(run, selected, drawn, failures=failures, rejected=rejected, host=host)),
            videos=list(_describe(survey, run)) if drawn and host else [],
            warnings=run.prepared.warnings,
            ends_well=not (failures or rejected or (survey and survey.failed)),
        )


def _count_failures(run: Run, selected: SelectedJobs) -> int:
    """Count the jobs that the run skips because they failed, as the run's summary does."""
    standing = run.jobs.chosen(~selected.jobs.here)
    return audit_jobs(run.database, run.key, jobs=standing.parts()).failures if len(standing) else 0


def _survey(run: Run, drawn: ManifestClips, note: Note) -> Survey | None:
    spec, options = run.spec, replace(_QUICK_SURVEY, chunk_s=run.spec.chunk_s)
    sampling = spec.sampling if isinstance(spec, RunSpec) else spec.sampling(max_pixels=_DESCRIBED_PX)
    return survey_clips(run.request.manifest, drawn, run.settings, sampling, options, note=note)


def _describe(survey: Survey | None, run: Run) -> Iterator[str]:
    if survey is None:
        longer = command("manifest survey", run.request.manifest, keep_going=len(run.jobs.rejects) > 0)
        yield (
            f"No video was surveyed within {_QUICK_SURVEY.limit_s:g} s, which a busy machine or a slow store may take; "
            f"to survey for longer: {longer}"
        )
    elif run.has_questions:
        yield from headlines(survey)
        yield from (f"{name}: {text}" for name, text in amount(survey))
    else:
        yield from unusable(survey)


def _lines(
    run: Run,
    selected: SelectedJobs,
    drawn: ManifestClips | None,
    *,
    failures: int,
    rejected: int,
    host: str | None,
) -> Iterator[str]:
    jobs, chosen = len(selected.jobs), selected.chosen
    videos = pluralize(drawn.videos, "video") if drawn else "0 videos"
    yield f"Would answer {pluralize(jobs, 'job')} on {videos} of {run.key.dataset}."
    if run.selector:
        yield run.selector.earlier.name_specs(run.spec)
    if chosen and chosen.reasons:
        yield f"Selected: {', '.join(f'{count:,} {reason}' for reason, count in chosen.reasons.items())}."
    if standing := len(chosen.jobs if chosen else run.jobs) - selected.pending:
        yield f"Skipping {pluralize(standing, 'job')} already finished; turn on force to include those with a label."
    if failures:
        yield f"{failures:,} of these failed, so that the run ends with exit code 1."
    if over := selected.pending - jobs:
        yield f"Leaving out {pluralize(over, 'job')} beyond the limit."
    if chosen and chosen.unknown:
        yield f"{describe_unknown_ids(chosen.unknown, run.settings.home)}; ignored."
    yield from chosen.elsewhere if chosen else ()
    if jobs:
        yield from _how_asked(run, selected)
    if rejected:
        yield f"Leaving out {pluralize(rejected, 'invalid row')}, so that the run ends with exit code 1."
    if jobs:
        yield from _pace(run, jobs, host=host)


def _how_asked(run: Run, selected: SelectedJobs) -> Iterator[str]:
    spec, duplicates = run.spec, run.prepared.duplicates
    if duplicates:
        yield duplicates.describe(selected.jobs)
    if isinstance(spec, RunSpec) and spec.chunk_s is not None:
        yield f"Each job is asked about in chunks of {spec.chunk_s:g} s, by the rule {spec.chunk_rule}."


def _pace(run: Run, jobs: int, *, host: str | None) -> Iterator[str]:
    """Estimate the time from past runs of the spec; for a new spec, from those of the earlier one."""
    specs = {"this spec": run.spec.spec_id}
    if run.selector and run.selector.earlier.spec:
        specs["the earlier spec (the new one may be slower)"] = run.selector.earlier.spec.spec_id
    for name, spec_id in specs.items():
        pace = past_pace(run.database, Scope(dataset=run.key.dataset, spec_id=spec_id), host=host)
        if pace.jobs:
            based = f"by {pluralize(pace.jobs, 'job')} of past runs with {name} on {host or 'any host'}"
            costs = "" if pace.cost is None else f", at a cost of about {format_price(pace.cost * jobs)}"
            yield f"Answering: about {duration(pace.duration_s(jobs))}{costs}, {based}."
            return
