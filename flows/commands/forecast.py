"""`reelabel backfill --dry-run`: how many jobs a backfill would answer, and how long it may take."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from flows.choosing import describe_unknown_ids
from flows.commands.terminal import print_line
from infra.database import Login, connect
from infra.embedded import export
from infra.objects import ObjectStore
from infra.sampling_settings import SamplingOptions
from infra.settings import PromptOptions
from infra.wording import pluralize
from tasks.frames.fingerprints import current_fingerprints
from tasks.manifest.table import open_jobs
from tasks.results.forecast import Pace, past_pace
from tasks.results.pending import pending_jobs

if TYPE_CHECKING:
    from flows.choosing import JobSelector
    from tasks.domain import RunSpec
    from tasks.manifest.table import JobTable

_MINUTE_S = 60
_MB = 10**6


def print_forecast(choosing: JobSelector, *, manifest: str, asking: dict[str, Any], force: bool, submit: bool) -> None:
    """Print how many jobs would be answered, why they were selected, and an estimate from past runs.

    Raises:
        ManifestError: The manifest cannot be used.
        ConfigurationError: The selection is invalid, or the options conflict.
    """
    settings = choosing.settings
    os.environ.update(export(settings))
    from flows.request import RunRequest, resolve_spec  # noqa: PLC0415 - Prefect reads its environment

    choices = {"sampling": SamplingOptions(**asking["sampling"]), "prompts": PromptOptions(**asking["prompts"])}
    request = RunRequest(kind="backfill", manifest=manifest, base=choosing.earlier.spec, **asking | choices)
    _, spec = resolve_spec(request, choosing.earlier.restored(settings))
    objects = ObjectStore(settings.store, settings.web)
    with open_jobs(manifest, objects, only=choosing.only) as jobs:
        found = choosing.look(jobs, spec)
        wanted = found.jobs if force else _pending(found.jobs, choosing, spec, objects)
        asked = wanted.first(choosing.selection.limit)
        amount = _Amount(jobs=len(asked), videos=asked.count_videos())
    print_line(f"Would answer {amount} of {choosing.earlier.dataset}.")
    _print_counts(found.reasons, standing=len(found.jobs) - len(wanted), over=len(wanted) - len(asked))
    if found.unknown:
        print_line(f"{describe_unknown_ids(found.unknown, settings.home)}.")
    if amount.jobs:
        print_line(_expectation(choosing, spec, amount, host=None if submit else socket.gethostname()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """How many jobs and videos would be processed."""

    jobs: int
    videos: int

    def __str__(self) -> str:
        return f"{pluralize(self.jobs, 'job')} on {pluralize(self.videos, 'video')}"


def _pending(chosen: JobTable, choosing: JobSelector, spec: RunSpec, objects: ObjectStore) -> JobTable:
    reader = connect(choosing.settings.database, Login.READER)
    try:
        return pending_jobs(
            reader,
            dataset=choosing.earlier.dataset,
            spec_id=spec.spec_id,
            jobs=chosen,
            fingerprints_of=partial(current_fingerprints, objects),
            retry_failures=True,
        )
    finally:
        reader.dispose()


def _print_counts(reasons: dict[str, int], *, standing: int, over: int) -> None:
    if reasons:
        chosen = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        print_line(f"Selected: {chosen}.")
    if standing:
        print_line(f"Skipping {pluralize(standing, 'job')} with a valid label; use --force to include them.")
    if over:
        print_line(f"Leaving out {pluralize(over, 'job')} beyond --limit.")


def _expectation(choosing: JobSelector, spec: RunSpec, amount: _Amount, *, host: str | None) -> str:
    """Estimate minutes and bytes from past runs of the spec; for a new spec, from those of the earlier one."""
    specs = dict.fromkeys(each.spec_id for each in (spec, choosing.earlier.spec) if each)
    where = f"on {host}" if host else "on any host"
    reader = connect(choosing.settings.database, Login.READER)
    try:
        paces = {each: past_pace(reader, dataset=choosing.earlier.dataset, spec_id=each, host=host) for each in specs}
    finally:
        reader.dispose()
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
