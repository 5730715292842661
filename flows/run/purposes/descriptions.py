"""Runs that describe videos: `describe`, and backfills of its jobs."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flows.run.executors.describe_executor import describe_locally
from flows.run.purposes.purpose import Execute, Purpose
from flows.run.search_index import index_embeddings
from infra.settings.describe import DescribeOptions
from reelabel.errors import ConfigurationError, ObjectError
from reelabel.sources.object_store import ObjectStore
from reelabel.temporary import temporary_folder
from tasks.description.banks import ACTIVITIES, PLACES, read_bank
from tasks.description.pooling import EmbeddedBank
from tasks.description.scenes.detector import find
from tasks.description.scenes.registry import scene_detectors
from tasks.domain import DescribeSpec, RunPhase
from tasks.embedding.backend import towers_backend
from tasks.embedding.opened import bank_files, open_towers
from tasks.results.search_catalogue import DatabaseCatalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine

    from flows.run.context import RunContext
    from flows.run.progress import Progress
    from flows.run.request import RunRequest
    from infra.settings import Settings
    from tasks.description.banks import Bank
    from tasks.domain import ModelIdentity, Spec, WallClockProfile
    from tasks.embedding.backend import EmbeddingBackend
    from tasks.embedding.bank_file import BankFiles
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard
    from tasks.plans.plan import Plan

_DEFAULTS = DescribeOptions(
    tags=str(PLACES),
    captions=str(ACTIVITIES),
    top_k=5,
    chunk_s=10.0,
    frames_per_chunk=16,
    sampler="dense",
    method="default",
)
_SCENES = {"default": "auto", "published": "published"}


class Descriptions(Purpose):
    """Describes videos by their frames' embeddings."""

    has_questions = False

    def __init__(self) -> None:
        """Start without banks."""
        self._banks: dict[str, Bank] = {}

    def resolve(self, request: RunRequest, settings: Settings) -> tuple[ModelCard, Spec]:
        """Resolve the spec from the options and the settings; a backfill has that of the earlier run."""
        assert request.describes is not None
        if request.base is not None:
            return _resolve_again(request, settings)
        given = [each.model_dump(exclude_none=True) for each in (_DEFAULTS, settings.describe, request.describes)]
        options = DescribeOptions.model_validate(
            {name: value for each in given for name, value in each.items() if name in DescribeOptions.model_fields}
        )
        card = towers_backend(settings.describe.backend).card(options.model, revision=settings.describe.revision)
        method = options.scene_method or _SCENES[options.method or "default"]
        scene_detectors()  # registers them
        detector = find(method)
        detector.require_installed()
        objects, files = ObjectStore(settings.store, settings.web), bank_files(settings)
        banks = [_read(path, objects) for path in (options.tags, options.captions)]
        tags, captions = (files.keep_texts(bank.texts) for bank in banks)
        self._banks = {tags: banks[0], captions: banks[1]}
        spec = DescribeSpec(
            model=card.identity,
            sampler=options.sampler or "dense",
            seconds_per_chunk=options.chunk_s or 0,
            frames_per_chunk=options.frames_per_chunk or 0,
            tags=tags,
            captions=captions,
            top_k=options.top_k or 0,
            method=options.method or "default",
            scene_method=method,
            scene_threshold=detector.threshold if options.scene_threshold is None else options.scene_threshold,
        )
        return card, spec

    def check_jobs(self, jobs: JobTable, spec: Spec, *, manifest: str, settings: Settings) -> None:
        """Check nothing more: any video can be described."""

    def check_backend(self, card: ModelCard, settings: Settings) -> None:
        """Check nothing: the towers are started before the run's first row, if they are needed for its banks."""

    def doubts(self, request: RunRequest, settings: Settings, card: ModelCard) -> tuple[str, ...]:
        """Return nothing."""
        del request, settings, card
        return ()

    @contextmanager
    def ready(
        self, settings: Settings, *, card: ModelCard, spec: Spec, database: Engine, ledger: WallClockProfile
    ) -> Iterator[Execute]:
        """Embed the banks, unless an earlier run has; the towers stay loaded for the plan. At the end, index.

        A run that has described videos and embedded none leaves the index as it is: to find that nothing is new takes
        as long as it takes to describe them.
        """
        described, files = description_spec(spec), bank_files(settings)
        digests = (described.tags, described.captions)
        banks = [self._banks.get(digest) or files.read_texts(digest) for digest in digests]
        with closing(open_towers(settings, card)) as towers:
            tags, captions = (
                files.find_vectors(bank.texts, described.model) or _embed(bank, towers, files, described.model, ledger)
                for bank in banks
            )
            embedded: list[int] = []

            def execute(plan: Plan, progress: Progress, context: RunContext, *, done_before: Sequence[int]) -> None:
                describe = partial(describe_locally, towers=towers, tags=tags, captions=captions)
                describe(plan, progress, context, done_before=done_before)
                embedded.append(progress.videos_extracted)

            yield execute
        if not embedded or any(embedded):
            index_embeddings(settings, DatabaseCatalogue(database), described.model)

    def warn_of_jobs(self, context: RunContext, selected: JobTable) -> str:
        """Warn of nothing: whether a video can be described shows when it is read."""
        del context, selected
        return ""

    def is_local(self, settings: Settings) -> bool:
        """Return true: several machines describe one manifest by starting the same run, whose plan they share."""
        del settings
        return True


def description_spec(spec: Spec) -> DescribeSpec:
    """Return the spec of a run that describes videos."""
    assert isinstance(spec, DescribeSpec)
    return spec


def _resolve_again(request: RunRequest, settings: Settings) -> tuple[ModelCard, Spec]:
    """Return the spec of the earlier run, whose model must still be there."""
    assert request.base is not None
    base = description_spec(request.base)
    if request.overrides.model_dump(exclude={"model"}, exclude_defaults=True):
        raise ConfigurationError(
            "A backfill of descriptions keeps the options of the earlier run; to change them, describe the manifest "
            "again, which reuses its embeddings."
        )
    backend, revision = towers_backend(settings.describe.backend), base.model.revision
    name = request.overrides.model or (base.model.name if revision else settings.describe.model)
    card = backend.card(name, revision=revision or settings.describe.revision)
    if card.identity != base.model:
        raise ConfigurationError(
            f"The earlier run described with {base.model.name}, and {card.identity.name} is set now, or another "
            "version of it; name the model's folder, or restore describe.model."
        )
    return card, base


def _read(place: str | None, objects: ObjectStore) -> Bank:
    """Read a bank from a path, or a URI."""
    assert place is not None
    if "://" not in place:
        return read_bank(Path(place).expanduser())
    with temporary_folder("bank") as folder:
        copy = folder / f"bank{Path(place).suffix}"
        try:
            copy.write_bytes(objects.read(place))
        except ObjectError as error:
            raise ConfigurationError(f"Cannot read the bank {place}: {error.message}") from None
        try:
            return read_bank(copy)
        except ConfigurationError as error:
            raise ConfigurationError(error.message.replace(str(copy), place)) from None


def _embed(
    bank: Bank, towers: EmbeddingBackend, files: BankFiles, model: ModelIdentity, ledger: WallClockProfile
) -> EmbeddedBank:
    """Embed a bank, after checking that the model takes its texts, and keep the vectors."""
    with ledger.doing(RunPhase.LOAD):
        info = towers.wait_ready()
    bank.check_lengths(towers.count_tokens(bank.texts), info.max_tokens)
    embedded = EmbeddedBank(texts=bank.texts, vectors=towers.embed_texts(bank.texts))
    files.keep_vectors(embedded, model)
    return embedded
