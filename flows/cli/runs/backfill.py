"""`reelabel backfill` and `reelabel reference`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.console import print_line, require_parent_folder
from flows.cli.context import find_run, open_database, running_with_prefect
from flows.cli.options import IdFile, Run, example, with_backfill
from flows.cli.runs.run import require_deployment, run_locally, submit, watch_submitted
from flows.cli.runs.summary import print_summary
from flows.cli.survey import print_forecast, progress
from flows.run.request import BackfillRequest
from flows.run.selection import find_base_run, split_ids, store_ids
from infra.database.connect import Role
from infra.embedded import ServiceName, export, is_kept, missing_services
from infra.program import command, command_with_settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize, read_error
from tasks.results.read import count_ids_by_dataset
from tasks.results.runs import mark_reference, newest_run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from infra.settings import Settings
    from tasks.results.selection import Selection

_DEPLOYMENT = "backfill/by-ids"
# More would make a flow run's parameters unwieldy in the Prefect UI.
_MAX_INLINE_IDS = 1000


@example("reelabel backfill --failed --code video_missing --dry-run")
@with_backfill
def backfill(
    *,
    manifest: Annotated[str | None, typer.Option(help="Default: the manifest of --run, or of the last run.")] = None,
    options: Any,  # noqa: ANN401 - the fields of a request
    submit: Annotated[
        bool, typer.Option("--submit", help="Submit to the deployment backfill/by-ids instead of running here.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --submit: show progress until the submitted run ends.")
    ] = False,
    id_file: IdFile = None,
) -> None:
    """Rerun selected jobs, by id or by outcome.

    Model, sampling, prompts and chunks stay those of the earlier run unless an option overrides them.
    """
    ids = _read_ids(options.ids, options.ids_file)
    if not ids and options.selection.is_empty:
        raise ConfigurationError(
            "No jobs selected; use --ids, --ids-file, --failed, --code, --missing, --changed-video, --label, "
            "--margin-below, --run, --task, --since, --until or --where."
        )
    with open_database(store=True) as (settings, engine):
        manifest, selection = _resolve_run(options.selection, manifest, options.dataset, engine, ids)
        earlier = find_base_run(settings, manifest=manifest, dataset=options.dataset, run=selection.run)
        resolved = {"selection": selection, "dataset": earlier.dataset if earlier.spec else options.dataset}
        id_options = (
            {"ids": ids, "ids_file": None} if options.dry_run else _id_parameters(ids, settings, is_submitted=submit)
        )
        request = BackfillRequest.of(**dict(options) | resolved | id_options, manifest=manifest)
        if options.dry_run:
            resolved |= {"dataset": earlier.dataset, "dry_run": False}
            again = command_with_settings(
                "backfill", options=options.model_copy(update=resolved), manifest=manifest, submit=submit, wait=wait
            )
            code = _forecast(request, settings, is_submitted=submit, wait=wait, again=again)
        elif submit:
            print_line(earlier.name_specs(None))
            code = _submit(request.parameters, settings, wait=wait, id_file=id_file)
        else:
            code = run_locally(request, id_file)
    raise typer.Exit(code)


@example("reelabel reference 1a2b3c4d")
def reference(
    run: Run, *, remove: Annotated[bool, typer.Option("--remove", help="Remove the run's mark.")] = False
) -> None:
    """Mark a run as the reference of its manifest: backfills use its spec.

    Without a mark, they use that of the last run of the whole manifest.
    """
    with open_database(login=Role.WRITER) as (_, writer):
        row = find_run(writer, run)
        mark_reference(writer, row["run_id"], is_reference=not remove)
    verb = "no longer take" if remove else "take"
    print_line(f"Backfills of {row['manifest_uri']} in {row['dataset']} {verb} the spec of run {row['run_id']}.")


def _read_ids(ids: list[str], ids_file: str | None) -> list[str]:
    listed = ""
    try:
        if ids_file == "-":
            listed = sys.stdin.read() if sys.stdin else ""  # it may be closed
        elif ids_file:
            listed = Path(ids_file).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Cannot read {ids_file}: {read_error(error)}.") from None
    return list(dict.fromkeys([*ids, *split_ids(listed)]))


def _resolve_run(
    selection: Selection, manifest: str | None, dataset: str | None, engine: Engine, ids: list[str]
) -> tuple[str, Selection]:
    """Return the manifest, and the selection with the run's full id: by the start, `last` may be another run."""
    if selection.run is not None:
        row = find_run(engine, selection.run)
        selection = selection.model_copy(update={"run": str(row["run_id"])})
        return absolute_uri(manifest or row["manifest_uri"]), selection
    if manifest is None:
        dataset = dataset or (_dataset_of(ids, engine) if ids else None)
        found = newest_run(engine, manifest_uri=None, dataset=dataset) if dataset else find_run(engine, "last")
        if found is None:
            raise ConfigurationError(f"No run of dataset {dataset} has been started; pass its --manifest.")
        manifest = found["manifest_uri"]
    return absolute_uri(manifest), selection


def _dataset_of(named: list[str], engine: Engine) -> str:
    found = count_ids_by_dataset(engine, named)
    if not found:
        others, their = (", or of any other id given", "their") if len(named) > 1 else ("", "its")
        raise ConfigurationError(f"No dataset has a result of job {named[0]}{others}; pass {their} --manifest.")
    if len(found) > 1:
        shown = ", ".join(f"{dataset} ({count:,})" for dataset, count in found.items())
        raise ConfigurationError(f"These job ids are in several datasets: {shown}; choose one with --dataset.")
    return next(iter(found))


def _id_parameters(ids: list[str], settings: Settings, *, is_submitted: bool) -> dict[str, Any]:
    """Pass few ids as a parameter, many in a file on the store, which every worker can read."""
    if len(ids) <= _MAX_INLINE_IDS:
        return {"ids": ids, "ids_file": None}
    assert settings.store.uri is not None
    uri, counted = store_ids(ids, ObjectStore(settings.store, settings.web), settings.store.uri), len(ids)
    print_line(
        f"Wrote {pluralize(counted, 'job id')} to {uri}." if is_submitted else f"Read {pluralize(counted, 'job id')}."
    )
    return {"ids": [], "ids_file": uri}


def _forecast(request: BackfillRequest, settings: Settings, *, is_submitted: bool, wait: bool, again: str) -> int:
    if is_submitted:
        _require_worker(settings, wait=wait)
        with running_with_prefect(ServiceName.PREFECT):
            require_deployment(_DEPLOYMENT)
    os.environ.update(export(settings))
    from flows.runs import forecast_backfill  # noqa: PLC0415 - Prefect reads its environment

    with progress() as note:
        found = forecast_backfill(request, settings, is_here=not is_submitted, note=note)
    return print_forecast(found, again=again)


def _submit(parameters: dict[str, Any], settings: Settings, *, wait: bool, id_file: str | None) -> int:
    _require_worker(settings, wait=wait)
    if id_file is not None:
        require_parent_folder(id_file)
    with running_with_prefect(*ServiceName) as started:
        run_id = submit(_DEPLOYMENT, parameters)
        if id_file is not None:
            Path(id_file).write_text(f"{run_id}\n")
        if wait:
            watch_submitted(run_id, started)
            return print_summary(started, run_id)
    results = command("results", str(run_id))
    print_line(f"Submitted flow run {run_id} of {_DEPLOYMENT}. For its results: {results}")
    return 0


def _require_worker(settings: Settings, *, wait: bool) -> None:
    is_embedded = ServiceName.WORKER in missing_services(settings, frozenset({ServiceName.WORKER}))
    if is_embedded and not wait and not is_kept(settings.home):
        raise ConfigurationError(
            "The embedded worker would stop with this command; start it with `reelabel up`, or add --wait."
        )
