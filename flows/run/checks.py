"""What is checked before the first row of a run."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from prefect import get_run_logger
from prefect.runtime import flow_run

from flows.run.context import RunContext
from flows.run.purposes.descriptions import Descriptions
from flows.run.purposes.questions import Questions
from infra.database.connect import connected
from reelabel.errors import ConfigurationError
from reelabel.frames.cache_key import decoder_versions
from reelabel.sources.object_store import ObjectStore
from tasks.database.schema import prepare_database
from tasks.domain import WallClockProfile
from tasks.manifest.dataset import dataset_name
from tasks.manifest.location import manifest_fingerprint
from tasks.manifest.table import open_jobs
from tasks.results.annotate import refresh_annotations
from tasks.results.pending import count_reused_ids
from tasks.results.runs import close_lost_runs
from tasks.results.write import RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from flows.run.context import Purpose
    from flows.run.request import RunRequest
    from infra.settings import Settings
    from tasks.domain import Spec
    from tasks.manifest.table import JobTable


def purpose_of(request: RunRequest) -> Purpose:
    """Return what a run is for."""
    return Questions() if request.describes is None else Descriptions()


@contextmanager
def open_run_context(
    request: RunRequest, settings: Settings, ledger: WallClockProfile | None = None
) -> Iterator[RunContext]:
    """Check everything that a run needs, before its first row is written, except that the model loads.

    Args:
        request: The run.
        settings: Its settings.
        ledger: Charged for a model that is loaded here, as for a bank that is new.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is unreachable or refuses access, or the dataset belongs to another manifest.
    """
    objects = ObjectStore(settings.store, settings.web)
    next(objects.list(_required_store(settings)), None)  # raises if the bucket is missing or refuses access
    # Read first: if the manifest is replaced meanwhile, its jobs must not be recorded under the new version.
    fingerprint = manifest_fingerprint(request.manifest, objects)
    purpose = purpose_of(request)
    with open_jobs(
        request.manifest,
        objects,
        only=request.only,
        keep_going=request.keep_going,
        questions=purpose.has_questions,
    ) as jobs:
        card, spec = purpose.resolve(request, settings)
        purpose.check_jobs(jobs, spec, manifest=request.manifest, settings=settings)
        purpose.check_backend(card, settings)
        run = _run_key(request, spec, model=card.identity.name)
        prepare_database(settings.database)
        with connected(settings.database) as database:
            reject_reused_ids(database, request, purpose, jobs)
            refresh_annotations(database, run, jobs=jobs)
            close_lost_runs(database)
            ledger = ledger or WallClockProfile()
            with purpose.ready(settings, card=card, spec=spec, database=database, ledger=ledger) as execute:
                yield RunContext(
                    request=request,
                    run=run,
                    spec=spec,
                    card=card,
                    jobs=jobs,
                    manifest_fingerprint=fingerprint,
                    settings=settings,
                    objects=objects,
                    database=database,
                    purpose=purpose,
                    execute=execute,
                    ledger=ledger,
                    warnings=_warn(purpose.doubts(request, settings, card)),
                )


def _warn(doubts: tuple[str, ...]) -> tuple[str, ...]:
    for doubt in doubts:
        get_run_logger().warning("%s.", doubt)
    return doubts


def _required_store(settings: Settings) -> str:
    if settings.database.url is None or settings.store.uri is None:
        raise ConfigurationError(
            "No database or store is configured; set REELABEL_DATABASE_URL and REELABEL_STORE_URI, "
            "or start the run with `reelabel classify` or `reelabel describe`, which start embedded ones.",
        )
    return settings.store.uri


def _run_key(request: RunRequest, spec: Spec, *, model: str) -> RunKey:
    return RunKey(
        run_id=UUID(flow_run.id) if flow_run.id else uuid4(),
        dataset=request.dataset or dataset_name(request.manifest),
        spec_id=spec.spec_id,
        model=model,
        versions=decoder_versions() | {"reelabel": version("reelabel")},
        host=socket.gethostname(),
    )


def reject_reused_ids(database: Engine, request: RunRequest, purpose: Purpose, jobs: JobTable) -> None:
    """Reject a manifest whose default dataset holds the rows of another one with the same file name.

    Raises:
        ConfigurationError: It does.
    """
    if request.dataset is not None:
        return
    dataset, describes = dataset_name(request.manifest), not purpose.has_questions
    count = count_reused_ids(database, dataset=dataset, manifest_uri=request.manifest, jobs=jobs, describes=describes)
    if count:
        raise ConfigurationError(
            f"Dataset {dataset} holds {'descriptions' if describes else 'labels'} of another manifest for "
            f"{count:,} of these job ids; name another dataset, or name {dataset} to replace them.",
        )
