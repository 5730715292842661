"""What a backfill would answer, and how long it may take."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from flows.run.descriptions import resolve_request
from flows.run.questions import check_questions
from flows.run.selection import describe_unknown_ids
from infra.database.connect import Role, connected
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.domain import DescribeSpec
from tasks.frame_cache.fingerprints import current_fingerprints, unusable_videos
from tasks.frame_cache.pool import video_store
from tasks.manifest.media import media_of
from tasks.manifest.schema import ROW
from tasks.manifest.table import open_jobs
from tasks.results.forecast import Pace, past_pace
from tasks.results.pending import pending_jobs

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from flows.run.request import BackfillRequest
    from flows.run.selection import BaseRun, JobSelector
    from infra.settings import Settings
    from tasks.domain import Spec
    from tasks.manifest.table import JobTable

_MINUTE_S = 60
_MB = 10**6
_WEB_S = 30.0  # in which a dry run asks web servers


class Forecast(NamedTuple):
    """What a backfill would come to.

    Attributes:
        jobs: How many jobs would be answered.
        failing: How many of them will certainly fail, as far as a look at their videos tells.
    """

    jobs: int
    failing: int


def forecast(choosing: JobSelector, request: BackfillRequest, *, host: str | None) -> Generator[str, None, Forecast]:
    """Yield sentences on how many jobs would be answered, why they were selected, and an estimate from past runs.

    Args:
        choosing: The selection.
        request: What the backfill is asked for.
        host: Machine whose past runs tell how long it takes; None is any, which may not see the videos that this one
            sees.

    Raises:
        ManifestError: The manifest cannot be used.
        ConfigurationError: The selection is invalid, or the options conflict.
    """
    settings = choosing.settings
    earlier = choosing.earlier
    objects, asks = ObjectStore(settings.store, settings.web), not earlier.describes
    with open_jobs(
        request.manifest, objects, only=choosing.only, keep_going=earlier.keep_going, questions=asks
    ) as jobs:
        spec = _resolve(request, earlier, settings, jobs, is_here=host is not None)
        found = choosing.resolve(jobs, spec)
        wanted = _wanted(found.jobs, choosing, spec, force=request.force)
        asked = wanted.first(choosing.selection.limit)
        amount = _Amount(jobs=len(asked), videos=asked.count_videos())
        faults, unasked = _faults(asked, settings) if host else (Counter[str](), 0)
    yield f"Would answer {amount} of {choosing.earlier.dataset}."
    yield earlier.name_specs(spec)
    yield from _counts(found.reasons, standing=len(found.jobs) - len(wanted), over=len(wanted) - len(asked))
    yield from found.elsewhere
    choosing.require_known(found)
    if found.unknown:
        yield f"{describe_unknown_ids(found.unknown, settings.home)}."
    if amount.jobs:
        yield _expectation(choosing, spec, amount, host=host)
    if unasked:
        yield f"{pluralize(unasked, 'video')} on web servers {'was' if unasked == 1 else 'were'} not asked for in time."
    if faults:
        causes = ", ".join(f"{count:,} {code}" for code, count in faults.most_common())
        yield f"Will fail, so that the run ends with exit code 1: {causes}."
    elif amount.jobs and host:
        yield "The run ends with exit code 1 if a job fails; which videos can be decoded shows only then."
    return Forecast(jobs=amount.jobs, failing=faults.total())


def _resolve(request: BackfillRequest, earlier: BaseRun, settings: Settings, jobs: JobTable, *, is_here: bool) -> Spec:
    settings = earlier.restored(settings)
    if isinstance(earlier.spec, DescribeSpec):
        return resolve_request(request, settings, base=earlier.spec)[1]
    return check_questions(request, settings, jobs, base=earlier.spec, is_here=is_here)[1]


def _faults(asked: JobTable, settings: Settings) -> tuple[Counter[str], int]:
    """Count the jobs whose video cannot be used, by the code of their failure, and the web videos not asked for."""
    web = replace(settings.web, total_timeout_s=min(settings.web.total_timeout_s, _WEB_S))
    objects = video_store(settings.model_copy(update={"web": web}))
    until_s = time.monotonic() + _WEB_S
    codes, unasked = Counter[str](), 0
    for part in asked.parts():
        shown = media_of(part).select(ROW, "uri")
        uris = shown["uri"].unique().sort().to_list()
        seen = unusable_videos(objects, uris, allow_roots=settings.extract.allow_roots, web_until_s=until_s)
        unasked += len(seen.unasked)
        failing = shown.filter(pl.col("uri").is_in(list(seen.faults))).unique(ROW, keep="first", maintain_order=True)
        codes.update(seen.faults[uri].code for uri in failing["uri"])
    return codes, unasked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    jobs: int
    videos: int

    def __str__(self) -> str:
        return f"{pluralize(self.jobs, 'job')} on {pluralize(self.videos, 'video')}"


def _wanted(chosen: JobTable, choosing: JobSelector, spec: Spec, *, force: bool) -> JobTable:
    if force:
        return chosen
    scope = Scope(dataset=choosing.earlier.dataset, spec_id=spec.spec_id)
    objects = video_store(choosing.settings)
    with connected(choosing.settings.database, Role.READER) as reader:
        fingerprints_of = partial(current_fingerprints, objects)
        return pending_jobs(reader, scope, jobs=chosen, fingerprints_of=fingerprints_of, retry_failures=True)


def _counts(reasons: dict[str, int], *, standing: int, over: int) -> Iterator[str]:
    if reasons:
        chosen = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        yield f"Selected: {chosen}."
    if standing:
        yield f"Skipping {pluralize(standing, 'job')} with a valid label; turn on force to include them."
    if over:
        yield f"Leaving out {pluralize(over, 'job')} beyond the limit."


def _expectation(choosing: JobSelector, spec: Spec, amount: _Amount, *, host: str | None) -> str:
    """Estimate minutes and bytes from past runs of the spec; for a new spec, from those of the earlier one."""
    dataset = choosing.earlier.dataset
    specs = dict.fromkeys(each.spec_id for each in (spec, choosing.earlier.spec) if each)
    where = f"on {host}" if host else "on any host"
    with connected(choosing.settings.database, Role.READER) as reader:
        paces = {each: past_pace(reader, Scope(dataset=dataset, spec_id=each), host=host) for each in specs}
    spec_id, pace = next(((each, pace) for each, pace in paces.items() if pace.jobs), (spec.spec_id, None))
    if pace is None:
        return f"No estimate: there is no past run of this dataset with this spec {where}."
    minutes = pace.duration_s(amount.jobs) / _MINUTE_S
    manner = "this spec" if spec_id == spec.spec_id else "the earlier spec (the new one may be slower)"
    rest = f"Based on {pluralize(pace.jobs, 'job')} of past runs with {manner} {where}."
    return f"Expected: {minutes:,.1f} minutes{_size(pace, amount)}. {rest}"


def _size(pace: Pace, amount: _Amount) -> str:
    if not pace.videos:
        return ""
    megabytes = pace.video_bytes * amount.videos / _MB
    return f", {megabytes:,.1f} MB of videos, extrapolated from {pluralize(pace.videos, 'video')}"
