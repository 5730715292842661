"""Runs that describe videos: `describe`, and backfills of its jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.utilities.annotations import quote

from flows.run.artifacts import ProgressArtifact
from flows.run.describing import open_describer, resolve_description
from flows.run.pipeline import cancel_on_exit, in_flight, settle_shard
from flows.run.request import DescribeRequest
from flows.run.run import Prepared
from flows.shard.describe import DescriptionContext, describe_shard
from flows.shard.queue import ShardQueue, shard_logged
from flows.shard.retry import retry_outage
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.domain import DescribeSpec, RunPhase
from tasks.embedding.bank_file import BankFiles
from tasks.embedding.encoder import open_encoder, read_encoder_info
from tasks.frame_cache.pool import decode_pool, video_store
from tasks.results.runs import add_versions, update_run
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from prefect.futures import PrefectFuture
    from sqlalchemy import Engine

    from flows.run.progress import Progress
    from flows.run.request import BackfillRequest
    from flows.run.run import Run
    from flows.shard.queue import LeasedShard
    from flows.shard.report import ShardReport
    from infra.settings import Settings
    from reelabel_engine.protocol import EncoderInfo
    from tasks.description.banks import Bank
    from tasks.description.pooling import TextBank
    from tasks.domain import WallClockProfile
    from tasks.embedding.encoder import Encoder
    from tasks.manifest.table import JobTable
    from tasks.model.identity import ModelInfo
    from tasks.plans.plan import Plan

_CONCURRENT_SHARDS = 3


@contextmanager
def prepare_descriptions(
    request: DescribeRequest | BackfillRequest,
    settings: Settings,
    _jobs: JobTable,
    _database: Engine,
    profile: WallClockProfile,
    *,
    base: DescribeSpec | None = None,
    dry_run: bool = False,
) -> Iterator[Prepared]:
    """Resolve the spec, and embed its banks unless an earlier run has; the encoder stays loaded for the plan.

    `base` is the spec of the earlier run, in a backfill. With `dry_run`, nothing is embedded.
    """
    model_info, spec, banks = resolve_request(request, settings, base=base)
    if dry_run:
        yield Prepared(spec=spec, model_info=model_info, execute=_execute_nothing)
        return
    with embedded_banks(settings, model_info, spec, banks, profile) as (encoder, info, banks_embedded):
        execute = partial(_execute_here, encoder=encoder, info=info, banks=banks_embedded)
        yield Prepared(spec=spec, model_info=model_info, execute=execute)


def _execute_nothing(*_run: object) -> None:
    raise AssertionError("A dry run executes no plan.")


def resolve_request(
    request: DescribeRequest | BackfillRequest, settings: Settings, *, base: DescribeSpec | None = None
) -> tuple[ModelInfo, DescribeSpec, Mapping[str, Bank]]:
    """Return the model's facts, the spec, and its banks by digest, of which a backfill reads none.

    A backfill has the spec of the earlier run, whose model must still be there.
    """
    if isinstance(request, DescribeRequest):
        return resolve_description(request.options, settings)
    assert base is not None
    if request.overrides.model_dump(exclude={"model"}, exclude_defaults=True):
        raise ConfigurationError(
            "A backfill of descriptions keeps the options of the earlier run; to change them, describe the manifest "
            "again, which reuses its embeddings."
        )
    name = request.overrides.model or (base.model.name if base.model.revision else None)
    model_info = read_encoder_info(settings, name, revision=base.model.revision)
    if model_info.identity != base.model:
        raise ConfigurationError(
            f"The earlier run used {base.model.name}, but describe.model is now {model_info.identity.name}, or another "
            "version of it; name the model's folder, or restore describe.model."
        )
    return model_info, base, {}


@contextmanager
def embedded_banks(
    settings: Settings, model_info: ModelInfo, spec: DescribeSpec, banks: Mapping[str, Bank], profile: WallClockProfile
) -> Iterator[tuple[Encoder, EncoderInfo, tuple[TextBank, TextBank]]]:
    """Yield the encoder, which is loaded on demand, what it reports, and the embedded banks of tags and captions."""
    files = BankFiles.of(settings.store, python=settings.model.python)
    with closing(open_encoder(settings, model_info)) as encoder:
        with profile.doing(RunPhase.LOAD):
            (tags, info), (captions, _) = (
                files.embed(banks.get(digest) or files.read_texts(digest), encoder, spec.model)
                for digest in (spec.tags, spec.captions)
            )
        yield encoder, info, (tags, captions)


def _execute_here(
    run: Run,
    plan: Plan,
    progress: Progress,
    _done_before: Sequence[int],
    *,
    encoder: Encoder,
    info: EncoderInfo,
    banks: tuple[TextBank, TextBank],
) -> None:
    settings, database, profile, spec = run.settings, run.database, progress.profile, run.spec
    assert isinstance(spec, DescribeSpec)
    progress.frames_setting = "describe.frames_per_chunk"
    with ExitStack() as stack:
        with profile.doing(RunPhase.LOAD):
            pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
            objects = ObjectStore(settings.store)
            videos = video_store(settings, files=objects)
            leasing = ShardQueue.of_plan(plan, settings, database, objects, is_over_budget=progress.is_over_budget)
            queue = stack.enter_context(leasing)
            stack.enter_context(cancel_on_exit(videos, objects))
            shards = iter(queue)
            first = list(islice(shards, 1))
            if not first:  # other workers have finished the plan meanwhile
                return
        progress.start_cpu_clock()
        _note_load(encoder, progress)
        retry_outage(add_versions, database, run.key.run_id, info.versions)
        workers = ThreadPoolExecutor(progress.processes * (1 + settings.extract.lookahead_shards))
        stack.callback(workers.shutdown, wait=False, cancel_futures=True)
        context = DescriptionContext(
            describer=open_describer(
                settings,
                pool,
                encoder,
                info,
                spec=spec,
                banks=banks,
                stores=(videos, objects),
                charge=partial(_answering, encoder, profile),
            ),
            encoder=encoder,
            writer=ShardWriter(database, run.key),
            workers=workers,
            profile=profile,
            gpus=lambda: encoder.loaded.gpus if encoder.loaded else 0,
        )
        artifact = stack.enter_context(ProgressArtifact(total=plan.jobs))
        for report in _describe_shards(chain(first, shards), queue, context, max_concurrent=_CONCURRENT_SHARDS):
            _note_load(encoder, progress)
            progress.add(report)
            retry_outage(update_run, database, run.key.run_id, **progress.columns())
            artifact.update(progress.jobs_ended)


def _note_load(encoder: Encoder, progress: Progress) -> None:
    info = encoder.loaded
    if info is None or progress.has_loaded:
        return
    progress.note_load(gpus=info.gpus, start_ms=info.start_ms)
    get_run_logger().info("The model is ready after %.1f s.", info.start_ms / 1e3)


@contextmanager
def _answering(encoder: Encoder, profile: WallClockProfile) -> Iterator[None]:
    """Measure the time in which the encoder works, and apart from it that of loading it."""
    if encoder.loaded is None:
        with profile.doing(RunPhase.LOAD):
            encoder.info()
    with profile.doing(RunPhase.ANSWER):
        yield


def _describe_shards(
    shards: Iterable[LeasedShard | None], queue: ShardQueue, context: DescriptionContext, *, max_concurrent: int
) -> Iterator[ShardReport]:
    def submit(leased: LeasedShard) -> tuple[LeasedShard, PrefectFuture[ShardReport]]:
        with shard_logged(leased.plan, leased.lease, None):
            arguments = (quote(leased.shard), quote(leased.lease), quote(context))
            return leased, describe_shard.submit(leased.lease.shard_index, *arguments)  # type: ignore[call-overload]

    for started in in_flight(shards, submit, limit=max_concurrent):
        if started and (report := settle_shard(queue, *started, stage=None)):
            yield report
