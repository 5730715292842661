"""One run from its manifest to its audit: what `classify` and `backfill` share."""

from __future__ import annotations

import os
import socket
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from prefect import get_run_logger
from prefect.runtime import flow_run
from prefect.utilities.annotations import quote

from flows.artifacts import ProgressArtifact, publish_results
from flows.cost import cost_lines
from flows.engine_config import engine_config
from flows.parameters import AS_SET, WORDED_AS_SET
from flows.progress import Progress
from flows.shards import Answering, ExtractedShard, extract_shard, infer_shard
from flows.spec import make_spec
from infra.database import connect
from infra.errors import ConfigurationError, NotReconciledError, ReelabelError, VideoError
from infra.objects import ObjectStore
from tasks.domain import Part
from tasks.frames.cache import FrameCache
from tasks.frames.decoding import decode_pool, video_limits
from tasks.frames.key import decoder_versions
from tasks.frames.prepare import Preparer, look_at_video
from tasks.manifest.read import dataset_name, read_jobs
from tasks.manifest.shard import plan_shards
from tasks.model.ambiguity import find_ambiguous, read_encoder
from tasks.model.identity import ModelCard, read_model_card
from tasks.model.process import EngineProcess, engine_environment
from tasks.results.annotate import refresh_annotations
from tasks.results.audit import AuditReport, audit_jobs
from tasks.results.pending import count_foreign, pending_jobs
from tasks.results.runs import cancel_run, close_run, open_run, update_run
from tasks.results.schema import upgrade_schema
from tasks.results.write import RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prefect.futures import PrefectFuture
    from sqlalchemy import Engine

    from infra.settings import PromptChoice, SamplingChoice, Settings
    from tasks.domain import Job, RunSpec, Shard
    from tasks.video.pool import DecodePool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What a run is asked to do.

    Attributes:
        kind: `classify` or `backfill`.
        select: Chooses among the manifest's jobs, given those without a valid label.
    """

    kind: str
    manifest: str
    dataset: str | None = None
    num_frames: int | None = None
    sampling: SamplingChoice = AS_SET
    model: str | None = None
    prompts: PromptChoice = WORDED_AS_SET
    permutations: int | None = None
    select: Callable[[Sequence[Job], Sequence[Job], Engine, RunSpec, str], Sequence[Job]] = field(
        default=lambda _jobs, pending, *_: pending,
    )


def execute_run(request: RunRequest, settings: Settings) -> AuditReport:
    """Carry out a run inside a Prefect flow.

    Everything that can be wrong with the request is found before the first row is written, but for
    a model that turns out not to load.

    Raises:
        ManifestError: The manifest cannot be used.
        ModelError: The model cannot be used.
        ConfigurationError: A service is missing or refuses.
        NotReconciledError: The run ended, but some jobs have no row.
        TransientError: A service went away for longer than the retries; run again to go on.
    """
    objects = ObjectStore(settings.store, settings.web)
    next(objects.list(_required_store(settings)), None)  # says at once where the bucket is missing or refuses
    jobs = read_jobs(request.manifest, objects)
    card = read_model_card(request.model or settings.model.name, revision=settings.model.revision)
    engine_environment(engine_config(card, settings))
    spec = make_spec(
        card,
        settings,
        num_frames=request.num_frames,
        choice=request.sampling,
        prompts=request.prompts,
        permutations=request.permutations,
    )
    dataset = request.dataset or dataset_name(request.manifest)
    database = connect(settings.database)
    try:
        upgrade_schema(database)
        if request.dataset is None:
            _refuse_foreign(database, dataset=dataset, manifest_uri=request.manifest, jobs=jobs)
        refresh_annotations(database, dataset=dataset, spec_id=spec.spec_id, jobs=jobs)
        retry = request.kind == "backfill"
        pending = find_pending(database, objects, dataset=dataset, spec=spec, jobs=jobs, retry_failures=retry)
        wanted = request.select(jobs, pending, database, spec, dataset)
        run = RunKey(
            run_id=UUID(flow_run.id) if flow_run.id else uuid4(),
            dataset=dataset,
            spec_id=spec.spec_id,
            model=card.identity.name,
            versions=decoder_versions() | {"reelabel": version("reelabel")},
            host=socket.gethostname(),
        )
        shards = plan_shards(wanted, target_jobs=settings.shard.target_jobs)
        facts = {
            "dataset": dataset,
            "manifest_uri": request.manifest,
            "kind": request.kind,
            "jobs_total": len(jobs),
            "jobs_skipped": len(jobs) - len(wanted),
            "shards_total": len(shards),
            "host": run.host,
            "versions": run.versions,
            "message": _forewarn(wanted, card, spec),
        }
        open_run(database, run_id=run.run_id, spec=spec, facts=facts)
        progress = Progress(processes=settings.extract.processes or os.cpu_count() or 1)
        get_run_logger().info(
            "%s: %s jobs, %s to ask in %s shards, by %s.",
            dataset,
            f"{len(jobs):,}",
            f"{len(wanted):,}",
            len(shards),
            run.model,
        )
        try:
            _work(shards, progress, run=run, spec=spec, card=card, settings=settings, database=database)
        except Exception as error:
            message = error.message if isinstance(error, ReelabelError) else f"{type(error).__name__}: {error}"
            close_run(database, run.run_id, state="failed", message=message)
            raise
        except BaseException:
            cancel_run(database, run.run_id)
            raise
        report = audit_jobs(database, dataset=dataset, spec_id=spec.spec_id, jobs=jobs)
        progress.ledger.charge(Part.AUDIT)
        columns = progress.columns()
        state = "done" if report.is_reconciled else "failed"
        close_run(database, run.run_id, state=state, message=str(report), **columns)
        get_run_logger().info("%s %s", report, columns["bottleneck"])
        publish_results(run.run_id, dataset=dataset, report=report, cost=cost_lines(columns))
        if not report.is_reconciled:
            raise NotReconciledError(str(report))
        return report
    finally:
        database.dispose()


def _forewarn(jobs: Sequence[Job], card: ModelCard, spec: RunSpec) -> str:
    """Say before the first shard which jobs will fail for their choices; empty where none will."""
    encode = read_encoder(card) if jobs else None
    found = find_ambiguous(jobs, scoring=spec.choice_scoring, encode=encode) if encode else None
    if found:
        get_run_logger().warning("%s", found)
    return str(found or "")


def find_pending(
    database: Engine,
    objects: ObjectStore,
    *,
    dataset: str,
    spec: RunSpec,
    jobs: Sequence[Job],
    retry_failures: bool = False,
) -> list[Job]:
    """Select the jobs without an ending that is valid for them and their videos as they stand now."""
    return pending_jobs(
        database,
        dataset=dataset,
        spec_id=spec.spec_id,
        jobs=jobs,
        fingerprint_of=lambda uri: _fingerprint(objects, uri),
        retry_failures=retry_failures,
    )


def _work(
    shards: Sequence[Shard],
    progress: Progress,
    *,
    run: RunKey,
    spec: RunSpec,
    card: ModelCard,
    settings: Settings,
    database: Engine,
) -> None:
    """Extract ahead and answer, shard by shard; while the engine is on one, the CPUs are on the next."""
    if not shards:
        return
    artifact = ProgressArtifact(total=sum(len(shard.jobs) for shard in shards))
    ledger, waiting_for = progress.ledger, Part.LOAD
    ledger.charge(Part.SETUP)
    log_path = settings.home / "logs" / "engine.log"
    with ExitStack() as stack:
        engine = EngineProcess(
            engine_config(card, settings),
            log_path=log_path,
            start_timeout_s=settings.model.start_timeout_s,
            answer_timeout_s=settings.model.answer_timeout_s,
        )
        stack.enter_context(engine)
        pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
        preparer = _preparer(settings, pool, spec)
        lookahead = settings.extract.lookahead_shards
        for extracting in _extract_ahead(shards, preparer, threads=progress.processes, lookahead=lookahead):
            info = engine.wait_ready()
            ledger.charge(waiting_for)
            extracted = extracting.result()
            ledger.charge(Part.SCHEDULE, extracted.spent_ms)
            progress.gpus = info.gpus
            progress.stage_ms["engine start"] = info.start_ms
            known = replace(run, versions=run.versions | info.versions)
            answering = Answering(
                spec=spec,
                cache=preparer.cache,
                pool=pool,
                limits=preparer.limits,
                engine=engine,
                database=database,
                run=known,
                batch_bytes=settings.model.batch_mib * 1024**2,
                ledger=ledger,
            )
            report = infer_shard(extracted.shard.index, quote(extracted), quote(answering))  # type: ignore[call-overload]
            ledger.charge(Part.SCHEDULE)
            progress.add(report)
            update_run(database, run.run_id, versions=known.versions, **progress.columns())
            ledger.charge(Part.DATABASE)
            artifact.update(progress.jobs_ended)
            get_run_logger().info("%s", report)
            waiting_for = Part.SCHEDULE
    ledger.charge(Part.UNLOAD)


def _extract_ahead(
    shards: Sequence[Shard],
    preparer: Preparer,
    *,
    threads: int,
    lookahead: int,
) -> Iterator[PrefectFuture[ExtractedShard]]:
    """Give shards in their order as they are being extracted, with up to `lookahead` more on their way."""
    extracting: deque[PrefectFuture[ExtractedShard]] = deque()
    for shard in shards:
        # Quoted, so that Prefect does not walk through every job looking for futures.
        extracting.append(extract_shard.submit(shard.index, quote(shard), quote(preparer), threads))  # type: ignore[call-overload]
        if len(extracting) > lookahead:
            yield extracting.popleft()
    while extracting:
        yield extracting.popleft()


def _preparer(settings: Settings, pool: DecodePool, spec: RunSpec) -> Preparer:
    objects = ObjectStore(settings.store, settings.web)
    assert settings.store.uri is not None
    return Preparer(
        objects=objects,
        cache=FrameCache(objects, settings.store.uri),
        pool=pool,
        sampling=spec.sampling,
        limits=video_limits(settings),
        stored_as=settings.store.encoding,
        allow_roots=settings.extract.allow_roots,
    )


def _required_store(settings: Settings) -> str:
    if settings.database.url is None or settings.store.uri is None:
        raise ConfigurationError(
            "No database or store is set; set REELABEL_DATABASE_URL and REELABEL_STORE_URI, "
            "or start the run by `reelabel classify`, which brings its own.",
        )
    return settings.store.uri


def _fingerprint(objects: ObjectStore, uri: str) -> str | None:
    try:
        return look_at_video(objects, uri).fingerprint
    except VideoError:
        return None


def _refuse_foreign(database: Engine, *, dataset: str, manifest_uri: str, jobs: Sequence[Job]) -> None:
    """Keep two manifests that happen to have one file name from replacing each other's labels."""
    count = count_foreign(database, dataset=dataset, manifest_uri=manifest_uri, jobs=jobs)
    if count:
        raise ConfigurationError(
            f"Dataset {dataset} holds labels of another manifest for {count:,} of these job ids; "
            f"give --dataset a name of its own, or --dataset {dataset} to replace them.",
        )
