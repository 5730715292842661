"""Runs that describe videos: `describe`, and backfills of its jobs."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from flows.run.context import Execute, Purpose
from flows.run.describing import description_spec, resolve_description
from flows.run.executors.describe_executor import describe_locally
from reelabel.errors import ConfigurationError
from tasks.domain import RunPhase
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import open_encoder, read_encoder_card

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from flows.run.context import RunContext
    from flows.run.request import RunRequest
    from infra.settings import Settings
    from tasks.description.banks import Bank
    from tasks.domain import Spec, WallClockProfile
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelCard


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
        resolved = resolve_description(request.describes, settings)
        self._banks = dict(resolved.banks)
        return resolved.card, resolved.spec

    def check_jobs(self, jobs: JobTable, spec: Spec, *, manifest: str, settings: Settings) -> None:
        """Check nothing more: any video can be described."""

    def check_backend(self, card: ModelCard, settings: Settings) -> None:
        """Check nothing: the encoder is started before the run's first row, if the banks need it."""

    def doubts(self, request: RunRequest, settings: Settings, card: ModelCard) -> tuple[str, ...]:
        """Return nothing."""
        del request, settings, card
        return ()

    @contextmanager
    def ready(
        self, settings: Settings, *, card: ModelCard, spec: Spec, database: Engine, ledger: WallClockProfile
    ) -> Iterator[Execute]:
        """Embed the banks, unless an earlier run has; the encoder stays loaded for the plan."""
        del database
        described, files = description_spec(spec), BankFiles.of(settings.store, python=settings.model.python)
        digests = (described.tags, described.captions)
        banks = [self._banks.get(digest) or files.read_texts(digest) for digest in digests]
        with closing(open_encoder(settings, card)) as encoder:
            with ledger.doing(RunPhase.LOAD):
                (tags, info), (captions, _) = (files.embed(bank, encoder, described.model) for bank in banks)
            yield partial(describe_locally, encoder=encoder, info=info, tags=tags, captions=captions)

    def warn_of_jobs(self, context: RunContext, selected: JobTable) -> str:
        """Warn of nothing: whether a video can be described shows when it is read."""
        del context, selected
        return ""

    def is_local(self, settings: Settings) -> bool:
        """Return true: several machines describe one manifest by starting the same run, whose plan they share."""
        del settings
        return True


def _resolve_again(request: RunRequest, settings: Settings) -> tuple[ModelCard, Spec]:
    """Return the spec of the earlier run, whose model must still be there."""
    assert request.base is not None
    base = description_spec(request.base)
    if request.overrides.model_dump(exclude={"model"}, exclude_defaults=True):
        raise ConfigurationError(
            "A backfill of descriptions keeps the options of the earlier run; to change them, describe the manifest "
            "again, which reuses its embeddings."
        )
    name = request.overrides.model or (base.model.name if base.model.revision else None)
    card = read_encoder_card(settings, name, revision=base.model.revision)
    if card.identity != base.model:
        raise ConfigurationError(
            f"The earlier run used {base.model.name}, but describe.model is now {card.identity.name}, or another "
            "version of it; name the model's folder, or restore describe.model."
        )
    return card, base
