"""`reelabel backfill`, and its `--dry-run`."""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.console import print_line
from flows.cli.context import open_database, prefect_ready, running_services
from flows.cli.run import run_locally, submit, submit_and_watch
from flows.cli.summary import print_summary
from flows.run.selection import JobSelector, describe_unknown_ids, find_base_run, store_ids
from infra.database.connect import Login, connect
from infra.embedded import ServiceName, export, is_kept, missing_services
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.wording import pluralize
from tasks.frame_cache.fingerprints import current_fingerprints
from tasks.frame_cache.pool import video_store
from tasks.manifest.table import open_jobs
from tasks.results.forecast import Pace, past_pace
from tasks.results.pending import pending_jobs
from tasks.results.runs import find_run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from flows.run.parameters import SpecOverrides
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.manifest.table import JobTable
    from tasks.results.selection import Selection


_MINUTE_S = 60
_MB = 10**6


def print_forecast(
    choosing: JobSelector, *, manifest: str, overrides: SpecOverrides, force: bool, submit: bool
) -> None:
    """Print how many jobs would be answered, why they were selected, and an estimate from past runs.

    Raises:
        ManifestError: The manifest cannot be used.
        ConfigurationError: The selection is invalid, or the options conflict.
    """
    settings = choosing.settings
    os.environ.update(export(settings))
    from flows.run.request import RunRequest, resolve_spec  # noqa: PLC0415 - Prefect reads its environment

    request = RunRequest(kind="backfill", manifest=manifest, base=choosing.earlier.spec, overrides=overrides)
    _, spec = resolve_spec(request, choosing.earlier.restored(settings))
    objects = ObjectStore(settings.store, settings.web)
    with open_jobs(manifest, objects, only=choosing.only, keep_going=choosing.earlier.keep_going) as jobs:
        found = choosing.resolve(jobs, spec)
        wanted = found.jobs if force else _pending(found.jobs, choosing, spec)
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


def _pending(chosen: JobTable, choosing: JobSelector, spec: RunSpec) -> JobTable:
    reader = connect(choosing.settings.database, Login.READER)
    try:
        return pending_jobs(
            reader,
            dataset=choosing.earlier.dataset,
            spec_id=spec.spec_id,
            jobs=chosen,
            fingerprints_of=partial(current_fingerprints, video_store(choosing.settings)),
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


_DEPLOYMENT = "backfill/by-ids"
# More would make a flow run's parameters unwieldy in the Prefect UI.
_MAX_INLINE_IDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions:
    """The options of a backfill.

    Attributes:
        ids: Job ids, comma-separated.
        ids_file: File with one job id per line; `-` is standard input.
        manifest: None takes that of the named run, or of the last run.
        dataset: None takes that of the manifest's last run.
        overrides: What the run changes of the earlier run's spec.
        force: Also answer jobs that have a valid label.
        submit: Submit to the deployment instead of running here.
        wait: Wait until a submitted run has ended.
    """

    selection: Selection
    ids: str
    ids_file: str | None
    manifest: str | None
    dataset: str | None
    overrides: SpecOverrides
    force: bool
    submit: bool
    wait: bool


def run_backfill(options: BackfillOptions, *, dry_run: bool) -> int:
    """Answer selected jobs again, or report what would be answered; return the exit code.

    Raises:
        ConfigurationError: No job is selected, or the file of ids cannot be read.
    """
    named = _read_ids(options)
    with open_database(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        manifest, selection = _resolve_run(options, engine)
        earlier = find_base_run(settings, manifest=manifest, dataset=options.dataset, run=selection.run)
        choosing = JobSelector(selection=selection, named=named, earlier=earlier, settings=settings)
        if dry_run:
            print_forecast(
                choosing, manifest=manifest, overrides=options.overrides, force=options.force, submit=options.submit
            )
            return 0
        parameters = {
            "manifest": manifest,
            "dataset": earlier.dataset if earlier.spec else options.dataset,
            "jobs": selection.model_dump(mode="json", exclude_defaults=True),
            "force": options.force,
            **_id_parameters(named, settings, submit=options.submit),
            "overrides": options.overrides.as_parameter(),
        }
        if options.submit:
            return _submit(parameters, settings, wait=options.wait)
        return run_locally("backfill", parameters)


def _read_ids(options: BackfillOptions) -> list[str]:
    lines: list[str] = []
    try:
        if options.ids_file == "-":
            lines = sys.stdin.read().splitlines()
        elif options.ids_file:
            lines = Path(options.ids_file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Cannot read {options.ids_file}: {error}.") from None
    found = (text.strip() for text in (*options.ids.split(","), *lines))
    named = list(dict.fromkeys(text for text in found if text))
    if not named and options.selection.is_empty:
        raise ConfigurationError(
            "No jobs selected; use --ids, --ids-file, --failed, --code, --missing, --label, --margin-below, --run, "
            "--task, --since, --until or --where."
        )
    return named


def _resolve_run(options: BackfillOptions, engine: Engine) -> tuple[str, Selection]:
    """Return the manifest, and the selection with the run's full id: `last` may be another run by the start."""
    selection, manifest = options.selection, options.manifest
    if selection.run is not None:
        row = find_run(engine, selection.run)
        selection = selection.model_copy(update={"run": str(row["run_id"])})
        return absolute_uri(manifest or row["manifest_uri"]), selection
    return absolute_uri(manifest or find_run(engine, "last")["manifest_uri"]), selection


def _id_parameters(named: list[str], settings: Settings, *, submit: bool) -> dict[str, Any]:
    """Pass few ids as a parameter, many in a file on the store, which every worker can read."""
    if len(named) <= _MAX_INLINE_IDS:
        return {"job_ids": named}
    assert settings.store.uri is not None
    uri = store_ids(named, ObjectStore(settings.store, settings.web), settings.store.uri)
    print_line(
        f"Wrote {pluralize(len(named), 'job id')} to {uri}." if submit else f"Read {pluralize(len(named), 'job id')}."
    )
    return {"ids_file": uri}


def _submit(parameters: dict[str, Any], settings: Settings, *, wait: bool) -> int:
    ours = ServiceName.WORKER in missing_services(settings, frozenset({ServiceName.WORKER}))
    if ours and not wait and not is_kept(settings.home):
        raise ConfigurationError(
            "The embedded worker would stop with this command; start it with `reelabel up`, or add --wait."
        )
    with running_services(*ServiceName) as started, prefect_ready(started):
        if not wait:
            run_id = submit(_DEPLOYMENT, parameters)
            print_line(
                f"Submitted flow run {run_id} of {_DEPLOYMENT}. For its results: reelabel results {str(run_id)[:8]}"
            )
            return 0
        run_id = submit_and_watch(_DEPLOYMENT, parameters, started)
        return print_summary(started, run_id)
