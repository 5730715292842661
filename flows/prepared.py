"""From what a run is asked to do to all that it needs; what can be wrong with the request is found here."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from prefect.runtime import flow_run

from flows.asker import check_asker
from flows.request import read_spec_of
from infra.database import connect
from infra.errors import ConfigurationError
from infra.objects import ObjectStore
from tasks.frames.key import decoder_versions
from tasks.manifest.match import manifest_fingerprint
from tasks.manifest.read import dataset_name
from tasks.manifest.table import open_jobs
from tasks.results.annotate import refresh_annotations
from tasks.results.pending import count_foreign
from tasks.results.routes import ask_again_below
from tasks.results.runs import close_lost_runs
from tasks.results.schema import prepare_database
from tasks.results.write import RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from flows.request import RunRequest
    from infra.settings import Settings
    from tasks.domain import RunSpec
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A run that can begin.

    Attributes:
        run: What its rows carry.
        card: The model that answers.
        jobs: The manifest's, or those of them that matter.
        manifest_fingerprint: Which version of the manifest they are of, or one before.
    """

    request: RunRequest
    run: RunKey
    spec: RunSpec
    card: ModelCard
    jobs: JobTable
    manifest_fingerprint: str
    settings: Settings = field(repr=False)
    objects: ObjectStore
    database: Engine


@contextmanager
def prepared(request: RunRequest, settings: Settings) -> Iterator[PreparedRun]:
    """Look at everything that a run needs, before its first row is written; a model may still turn out not to load.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is missing or refuses, or the dataset's name belongs to another manifest.
    """
    objects = ObjectStore(settings.store, settings.web)
    next(objects.list(_required_store(settings)), None)  # says at once where the bucket is missing or refuses
    # Looked at first: where a manifest is replaced meanwhile, nobody takes its jobs for those of the new one.
    fingerprint = manifest_fingerprint(request.manifest, objects)
    with open_jobs(request.manifest, objects, only=request.only) as jobs:
        card, spec = read_spec_of(request, settings)
        if settings.run.executor == "local":
            check_asker(card, settings)
        run = _run_key(request, spec, model=card.identity.name)
        prepare_database(settings.database)
        database = connect(settings.database)
        try:
            if request.dataset is None:
                _refuse_foreign(database, dataset=run.dataset, manifest_uri=request.manifest, jobs=jobs)
            refresh_annotations(database, dataset=run.dataset, spec_id=run.spec_id, jobs=jobs)
            close_lost_runs(database)
            ask_again_below(database, spec)  # refuses a margin that was never fitted
            yield PreparedRun(
                request=request,
                run=run,
                spec=spec,
                card=card,
                jobs=jobs,
                manifest_fingerprint=fingerprint,
                settings=settings,
                objects=objects,
                database=database,
            )
        finally:
            database.dispose()


def _required_store(settings: Settings) -> str:
    if settings.database.url is None or settings.store.uri is None:
        raise ConfigurationError(
            "No database or store is set; set REELABEL_DATABASE_URL and REELABEL_STORE_URI, "
            "or start the run by `reelabel classify`, which brings its own.",
        )
    return settings.store.uri


def _run_key(request: RunRequest, spec: RunSpec, *, model: str) -> RunKey:
    return RunKey(
        run_id=UUID(flow_run.id) if flow_run.id else uuid4(),
        dataset=request.dataset or dataset_name(request.manifest),
        spec_id=spec.spec_id,
        model=model,
        versions=decoder_versions() | {"reelabel": version("reelabel")},
        host=socket.gethostname(),
    )


def _refuse_foreign(database: Engine, *, dataset: str, manifest_uri: str, jobs: JobTable) -> None:
    """Keep two manifests that happen to have one file name from replacing each other's labels."""
    count = count_foreign(database, dataset=dataset, manifest_uri=manifest_uri, jobs=jobs)
    if count:
        raise ConfigurationError(
            f"Dataset {dataset} holds labels of another manifest for {count:,} of these job ids; "
            f"give --dataset a name of its own, or --dataset {dataset} to replace them.",
        )
