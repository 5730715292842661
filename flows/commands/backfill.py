"""`reelabel backfill`."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.choosing import JobSelector, find_base_run, store_ids
from flows.commands.opened import open_database, running_services
from flows.commands.run import run_locally, submit, submit_and_watch
from flows.commands.scheduler import prefect_ready
from flows.commands.summary import print_summary
from flows.commands.terminal import print_line
from infra.embedded import ServiceName, is_kept, missing_services
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from infra.uri import absolute_uri
from infra.wording import pluralize
from tasks.results.runs import find_run

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from infra.settings import Settings
    from tasks.results.selection import Selection

_DEPLOYMENT = "backfill/by-ids"
# More would make a flow run's parameters unwieldy in the Prefect UI.
_MOST_INLINE_IDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillOptions:
    """The options of a backfill.

    Attributes:
        ids: Job ids, comma-separated.
        ids_file: File with one job id per line; `-` is standard input.
        manifest: None takes that of the named run, or of the last run.
        dataset: None takes that of the manifest's last run.
        asking: Flow parameters that override the earlier run's spec; None and empty ones keep it.
        force: Also answer jobs that have a valid label.
        submit: Submit to the deployment instead of running here.
        wait: Wait until a submitted run has ended.
    """

    selection: Selection
    ids: str
    ids_file: str | None
    manifest: str | None
    dataset: str | None
    asking: dict[str, Any] = field(repr=False)
    force: bool
    submit: bool
    wait: bool


def run_backfill(wish: BackfillOptions, *, dry_run: bool) -> int:
    """Answer selected jobs again, or report what would be answered; return the exit code.

    Raises:
        ConfigurationError: No job is selected, or the file of ids cannot be read.
    """
    named = _read_ids(wish)
    with open_database(ServiceName.POSTGRES, ServiceName.S3) as (settings, engine):
        manifest, selection = _resolve_run(wish, engine)
        earlier = find_base_run(settings, manifest=manifest, dataset=wish.dataset, run=selection.run)
        choosing = JobSelector(selection=selection, named=named, earlier=earlier, settings=settings)
        if dry_run:
            from flows.commands.forecast import print_forecast  # noqa: PLC0415 - imports Prefect

            print_forecast(choosing, manifest=manifest, asking=wish.asking, force=wish.force, submit=wish.submit)
            return 0
        parameters = {
            "manifest": manifest,
            "dataset": earlier.dataset if earlier.spec else wish.dataset,
            "jobs": selection.model_dump(mode="json", exclude_defaults=True),
            "force": wish.force,
            **_id_parameters(named, settings, submit=wish.submit),
            **wish.asking,
        }
        if wish.submit:
            return _submit(parameters, settings, wait=wish.wait)
        return run_locally("backfill", parameters)


def _read_ids(wish: BackfillOptions) -> list[str]:
    lines: list[str] = []
    try:
        if wish.ids_file == "-":
            lines = sys.stdin.read().splitlines()
        elif wish.ids_file:
            lines = Path(wish.ids_file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"Cannot read {wish.ids_file}: {error}.") from None
    found = (text.strip() for text in (*wish.ids.split(","), *lines))
    named = list(dict.fromkeys(text for text in found if text))
    if not named and wish.selection.is_empty:
        raise ConfigurationError(
            "No jobs selected; use --ids, --ids-file, --failed, --code, --missing, --label, --margin-below, --run, "
            "--task, --since, --until or --where."
        )
    return named


def _resolve_run(wish: BackfillOptions, engine: Engine) -> tuple[str, Selection]:
    """Return the manifest, and the selection with the run's full id: `last` may be another run by the start."""
    selection, manifest = wish.selection, wish.manifest
    if selection.run is not None:
        row = find_run(engine, selection.run)
        selection = selection.model_copy(update={"run": str(row["run_id"])})
        return absolute_uri(manifest or row["manifest_uri"]), selection
    return absolute_uri(manifest or find_run(engine, "last")["manifest_uri"]), selection


def _id_parameters(named: list[str], settings: Settings, *, submit: bool) -> dict[str, Any]:
    """Pass few ids as a parameter, many in a file on the store, which every worker can read."""
    if len(named) <= _MOST_INLINE_IDS:
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
