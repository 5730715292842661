"""`reelabel backfill`, and its `--dry-run`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.console import print_line
from flows.cli.context import find_run, open_database, prefect_ready, running_services
from flows.cli.runs.dry_run import forecast_backfill
from flows.cli.runs.run import require_deployment, run_locally, submit, submit_and_watch
from flows.cli.runs.summary import print_summary
from flows.run.request import BackfillRequest
from flows.run.selection import find_base_run, split_ids, store_ids
from infra.database.connect import Role
from infra.embedded import ServiceName, is_kept, missing_services
from infra.program import command
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize, read_error
from tasks.results.read import count_ids_by_dataset
from tasks.results.runs import mark_reference, newest_run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from flows.run.request import QuestionOptions
    from infra.settings import Settings
    from tasks.results.selection import Selection


_DEPLOYMENT = "backfill/by-ids"
# More would make a flow run's parameters unwieldy in the Prefect UI.
_MAX_INLINE_IDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions:
    """The options of a backfill, as its command has them; `ids_file` may be `-`, for standard input."""

    selection: Selection
    ids: str
    ids_file: str | None
    manifest: str | None
    dataset: str | None
    overrides: QuestionOptions
    force: bool
    submit: bool
    wait: bool
    id_file: str | None = None


def run_backfill(options: BackfillOptions, *, dry_run: bool) -> int:
    """Answer selected jobs again, or report what would be answered; return the exit code."""
    named = _read_ids(options)
    with open_database(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        manifest, selection = _resolve_run(options, engine, named)
        earlier = find_base_run(settings, manifest=manifest, dataset=options.dataset, run=selection.run)
        ids = {"job_ids": named} if dry_run else _id_parameters(named, settings, submit=options.submit)
        request = BackfillRequest.of(
            manifest=manifest,
            dataset=earlier.dataset if earlier.spec else options.dataset,
            jobs=selection,
            force=options.force,
            **ids,
            overrides=options.overrides,
        )
        if dry_run:
            if options.submit:
                _require_deployment(settings, wait=options.wait)
            again = _command(options, selection, manifest, earlier.dataset)
            return forecast_backfill(request, settings, is_here=not options.submit, again=again)
        if options.submit:
            print_line(earlier.name_specs(None))
            return _submit(request.parameters, settings, wait=options.wait)
        return run_locally(request, options.id_file)


def mark(run: str, *, is_reference: bool) -> None:
    """Mark a run as the reference of its manifest, or remove its mark.

    Raises:
        ConfigurationError: No such run.
    """
    with open_database(ServiceName.POSTGRES, login=Role.WRITER) as (_, writer):
        row = find_run(writer, run)
        mark_reference(writer, row["run_id"], is_reference=is_reference)
    verb = "take" if is_reference else "no longer take"
    print_line(f"Backfills of {row['manifest_uri']} in {row['dataset']} {verb} the spec of run {row['run_id']}.")


def _read_ids(options: BackfillOptions) -> list[str]:
    listed = ""
    try:
        if options.ids_file == "-":
            listed = sys.stdin.read() if sys.stdin else ""  # it may be closed
        elif options.ids_file:
            listed = Path(options.ids_file).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Cannot read {options.ids_file}: {read_error(error)}.") from None
    given = filter(None, map(str.strip, options.ids.split(",")))
    named = list(dict.fromkeys([*given, *split_ids(listed)]))
    if not named and options.selection.is_empty:
        raise ConfigurationError(
            "No jobs selected; use --ids, --ids-file, --failed, --code, --missing, --changed-video, --label, "
            "--margin-below, --run, --task, --since, --until or --where."
        )
    return named


def _command(options: BackfillOptions, selection: Selection, manifest: str, dataset: str) -> str:
    """Return the command that the dry run was about, with the manifest and the dataset that it has found."""
    where = {"manifest": manifest, "dataset": dataset}
    chosen = {"ids": options.ids, "ids_file": options.ids_file, "selection": selection, "overrides": options.overrides}
    manner = {"force": options.force, "submit": options.submit, "wait": options.wait}
    return command("backfill", **chosen, **where, **manner)


def _resolve_run(options: BackfillOptions, engine: Engine, named: list[str]) -> tuple[str, Selection]:
    """Return the manifest, and the selection with the run's full id: `last` may be another run by the start."""
    selection, manifest = options.selection, options.manifest
    if selection.run is not None:
        row = find_run(engine, selection.run)
        selection = selection.model_copy(update={"run": str(row["run_id"])})
        return absolute_uri(manifest or row["manifest_uri"]), selection
    if manifest is None:
        dataset = options.dataset or (_dataset_of(named, engine) if named else None)
        found = newest_run(engine, manifest_uri=None, dataset=dataset) if dataset else find_run(engine, "last")
        if found is None:
            raise ConfigurationError(f"No run of dataset {dataset} has been started; name the jobs with --manifest.")
        manifest = found["manifest_uri"]
    return absolute_uri(manifest), selection


def _dataset_of(named: list[str], engine: Engine) -> str:
    """Find the dataset that has results of these job ids."""
    found = count_ids_by_dataset(engine, named)
    if not found:
        others, their = (", or of any other that was named", "their") if len(named) > 1 else ("", "its")
        raise ConfigurationError(
            f"No dataset has a result of job {named[0]}{others}; name {their} manifest with --manifest."
        )
    if len(found) > 1:
        shown = ", ".join(f"{dataset} ({count:,})" for dataset, count in found.items())
        raise ConfigurationError(f"These job ids are in several datasets: {shown}; name one with --dataset.")
    return next(iter(found))


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
    _require_worker(settings, wait=wait)
    with running_services(*ServiceName) as started, prefect_ready(started):
        if not wait:
            run_id = submit(_DEPLOYMENT, parameters)
            results = command("results", str(run_id))
            print_line(f"Submitted flow run {run_id} of {_DEPLOYMENT}. For its results: {results}")
            return 0
        run_id = submit_and_watch(_DEPLOYMENT, parameters, started)
        return print_summary(started, run_id)


def _require_worker(settings: Settings, *, wait: bool) -> None:
    ours = ServiceName.WORKER in missing_services(settings, frozenset({ServiceName.WORKER}))
    if ours and not wait and not is_kept(settings.home):
        raise ConfigurationError(
            "The embedded worker would stop with this command; start it with `reelabel up`, or add --wait."
        )


def _require_deployment(settings: Settings, *, wait: bool) -> None:
    _require_worker(settings, wait=wait)
    with running_services(ServiceName.PREFECT) as started, prefect_ready(started):
        require_deployment(_DEPLOYMENT)
