"""Runs that answer questions: `classify`, and most backfills."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from prefect import get_run_logger

from flows.run.artifacts import ProgressArtifact
from flows.run.duplicates import find_duplicate_jobs
from flows.run.pipeline import cancel_on_exit, extract_ahead, infer_shards, local_extraction, make_inference_context
from flows.run.remote import execute_remotely
from flows.run.request import ClassifyRequest
from flows.run.run import Prepared
from flows.run.spec import engine_settings, native_warning, resolve_spec
from flows.shard.queue import ShardQueue
from flows.shard.retry import retry_outage
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.domain import RunPhase, RunSpec
from tasks.frame_cache.pool import KEPT_BYTES, decode_pool, open_extractor
from tasks.manifest.check import require_cuttable
from tasks.manifest.plan_file import read_media
from tasks.model.backend import backend_of, require_media, require_words
from tasks.relevance import relevant_extraction
from tasks.results.evaluation.routes import escalation_margin
from tasks.results.runs import add_versions, update_run
from tasks.results.write import ShardWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Engine

    from flows.run.progress import Progress
    from flows.run.request import BackfillRequest
    from flows.run.run import Run
    from infra.settings import Settings
    from tasks.domain import WallClockProfile
    from tasks.manifest.table import JobTable
    from tasks.plans.plan import Plan


@contextmanager
def prepare_questions(
    request: ClassifyRequest | BackfillRequest,
    settings: Settings,
    jobs: JobTable,
    database: Engine,
    _profile: WallClockProfile,
    *,
    base: RunSpec | None = None,
    is_here: bool = True,
) -> Iterator[Prepared]:
    """Check all that a run needs, except that the model loads, which happens only for a plan.

    `base` is the spec of the earlier run, in a backfill. `is_here` is whether the run will be on this machine, where
    its backend must then be installed.

    Raises:
        ModelError: The model cannot be used.
        ManifestError: The jobs cannot be cut into chunks.
        ConfigurationError: The options conflict, the earlier spec cannot be reproduced, the margin for escalation was
            never fitted, no video was described to find duplicates, or the backend cannot show all videos of the jobs.
    """
    model_info, spec = resolve_spec(request.overrides, settings, base=base)
    if isinstance(request, ClassifyRequest):
        spec = spec.model_copy(update={"once_per_duplicate": request.once_per_duplicate})
    duplicates = find_duplicate_jobs(jobs, settings, database, spec) if spec.once_per_duplicate else None
    backend = backend_of(settings)
    require_cuttable(jobs.parts(), spec, manifest=request.manifest)
    require_media(backend, spec, jobs.media, settings)
    require_words(backend, words=jobs.words)
    is_remote = settings.run.executor == "remote"
    if is_here and not is_remote:
        backend.check(model_info, settings)
    escalation_margin(database, spec)  # raises if the margin was never fitted
    warning = native_warning(model_info, settings, request.overrides, base=base)
    unseen = duplicates.warning if duplicates else ""
    yield Prepared(
        spec=spec,
        model_info=model_info,
        execute=partial(execute_remotely, model=request.overrides.model) if is_remote else _execute_here,
        warnings=tuple(filter(None, (warning, _words_warning(jobs), unseen))),
        duplicates=duplicates,
    )


def _words_warning(jobs: JobTable) -> str:
    if not jobs.words:
        return ""
    return f"{jobs.words:,} of {pluralize(len(jobs), 'job')} have no choices, and are answered in words"


def _execute_here(run: Run, plan: Plan, progress: Progress, _done_before: Sequence[int]) -> None:
    """Extract and answer the shards of a plan until it is drained."""
    settings, database, spec, profile = run.settings, run.database, run.spec, progress.profile
    assert isinstance(spec, RunSpec)
    with ExitStack() as stack:
        with profile.doing(RunPhase.LOAD):
            pool = stack.enter_context(decode_pool(settings, processes=progress.processes))
            objects = ObjectStore(settings.store)
            extractor = open_extractor(settings, pool, spec.sampling, keep_bytes=KEPT_BYTES, files=objects)
            if spec.relevance:  # before the engine, which takes what memory is left of a GPU
                extractor = stack.enter_context(relevant_extraction(settings, extractor, spec.relevance, files=objects))
            media = read_media(objects, plan.plan_uri, seal=settings.store.seal)
            answering = engine_settings(settings, spec)
            opened = backend_of(settings).open(run.prepared.model_info, answering, media=media)
            backend = stack.enter_context(opened)
            leasing = ShardQueue.of_plan(plan, settings, database, objects, is_over_budget=progress.is_over_budget)
            queue = stack.enter_context(leasing)
            stack.enter_context(cancel_on_exit(extractor.objects, objects))
            ahead = settings.extract.lookahead_shards
            start = stack.enter_context(local_extraction(progress.processes * (1 + ahead)))
            extracting = extract_ahead(queue, lambda _: lambda: extractor, ahead=ahead, start=start)
            first = list(islice(extracting, 1))
            if not first:  # other workers have finished the plan meanwhile
                return
            info = backend.wait_ready()
        progress.note_load(gpus=info.gpus, start_ms=info.start_ms)
        progress.start_cpu_clock()
        get_run_logger().info("The engine is ready after %.1f s.", info.start_ms / 1e3)
        # Engine tuning affects speed but not answers.
        tuning = {"engine settings": info.tuning} if info.tuning else {}
        retry_outage(add_versions, database, run.key.run_id, info.versions | tuning)
        writer = ShardWriter(database, run.key)
        context = make_inference_context(extractor, backend, writer, spec=spec, settings=settings, profile=profile)
        artifact = stack.enter_context(ProgressArtifact(total=plan.jobs))
        reports = infer_shards(
            chain(first, extracting),
            queue,
            lambda _: context,
            profile=profile,
            max_concurrent=settings.model.max_concurrent_shards * backend.engines,
        )
        for report in reports:
            progress.add(report)
            retry_outage(update_run, database, run.key.run_id, **progress.columns())
            artifact.update(progress.jobs_ended)
        with profile.doing(RunPhase.UNLOAD):
            stack.close()
