"""Answers a plan without decoding and without a model, to measure the memory of everything else."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from benchmarks.engine.noise import frame_file_of
from benchmarks.scale.synthetic import RUN, SPEC
from flows.shard.context import InferenceContext, ShardOutcome
from flows.shard.extract import FrameStream
from flows.shard.infer import MAX_CONCURRENT_GROUPS, infer_views
from flows.shard.report import make_shard_report
from infra.database.connect import connect
from infra.settings import StoreSettings
from reelabel.frames.cache_key import FrameIdentity
from reelabel.sources.object_store import ObjectStore
from tasks.domain import Answer, RunPhase, View, group_by_views
from tasks.domain.provenance import FrameProvenance
from tasks.frame_cache.extractor import ExtractedVideo
from tasks.manifest.plan_file import read_shard
from tasks.plans.extracted import ExtractedShard
from tasks.plans.lease import LeaseKeeper, Work
from tasks.results.write import ShardResults, ShardWriter

if TYPE_CHECKING:
    from infra.settings import DatabaseSettings
    from reelabel_engine.protocol import Batch
    from tasks.domain import Shard
    from tasks.model.backend import Reply
    from tasks.plans.plan import Plan

_STORE = StoreSettings()
_CONCURRENT_SHARDS = 3  # as `model.max_concurrent_shards`
_LEASE_S = 600
_FRAMES, _SIDE_PX = 16, 56
_BATCH_BYTES = 256 * 1024**2 // (_CONCURRENT_SHARDS * MAX_CONCURRENT_GROUPS)  # as in a run


def answer(plan: Plan, settings: DatabaseSettings) -> int:
    """Answer every job of a plan, shard by shard, and write the rows; return the number of jobs.

    Every video has the same few frames, which need not be fetched, and whatever is asked is answered at once.
    """
    engine, objects, frames = connect(settings), ObjectStore(_STORE), _Frames()
    writer = ShardWriter(engine, RUN)
    context = InferenceContext(
        spec=SPEC,
        backend=cast("Any", _Instant()),
        writer=writer,
        batch_bytes=_BATCH_BYTES,
        extractor=cast("Any", SimpleNamespace(cache=frames, pool=None, limits=None)),  # nothing is decoded
    )
    with LeaseKeeper(engine, holder="benchmark", lease_s=_LEASE_S) as keeper:

        def work(_: int) -> int:
            jobs = 0
            while lease := keeper.claim(plan.plan_id, Work.BOTH):
                shard = read_shard(objects, plan.plan_uri, lease.shard_index, seal=_STORE.seal)
                outcome, extracted = _answered(shard, context)
                ended = ShardResults(results=outcome.results, failures=outcome.failures)
                report = make_shard_report(extracted, outcome, ended, SPEC.sampling).row({}, 0)
                writer.write(outcome.results, outcome.failures, lease=lease, report=report)
                keeper.forget(lease)
                jobs += len(outcome.results)
            return jobs

        with ThreadPoolExecutor(_CONCURRENT_SHARDS) as threads:
            return sum(threads.map(work, range(_CONCURRENT_SHARDS)))


def _answered(shard: Shard, context: InferenceContext) -> tuple[ShardOutcome, ExtractedShard]:
    views, now_s = group_by_views(shard.jobs, SPEC.sampling), time.time()
    extracted = ExtractedShard(
        shard=shard,
        outcomes={view: _video(view) for (view,) in views},
        spent_ms=dict.fromkeys((RunPhase.FETCH, RunPhase.DECODE), 0.0),
        between_s=(now_s, now_s),
    )
    outcome = ShardOutcome(index=shard.index)
    infer_views(FrameStream.whole(extracted), views, context, outcome)
    return outcome, extracted


class _Frames:
    """A frame cache that makes a frame file for each video that is read."""

    def __init__(self) -> None:
        images = np.random.default_rng(1).integers(0, 256, (_FRAMES, _SIDE_PX, _SIDE_PX, 3), np.uint8)
        self._data = frame_file_of(images, fps=1.0, fingerprint="etag-1", sampling=SPEC.sampling)

    def read(self, _identity: FrameIdentity) -> bytes:
        return bytes(bytearray(self._data))


class _Instant:
    """Answers at once."""

    def wait_ready(self) -> None:
        """Do nothing."""

    def confirm_model(self) -> None:
        """Do nothing."""

    def answer(self, batch: Batch) -> list[Reply]:
        return [_answer(len(question.choices)) for question in batch.questions]


def _answer(choices: int) -> Answer:
    return Answer(
        choice_index=0,
        probabilities=(1 / choices,) * choices,
        prompt_tokens=1071,
        cached_tokens=1024,
        preprocess_ms=9.481,
        inference_ms=10.733,
    )


def _video(view: View) -> ExtractedVideo:
    provenance = FrameProvenance(fingerprint="etag-1", decode_method="index", keyframes_in_file=30, frames_used=_FRAMES)
    size_bytes = _FRAMES * _SIDE_PX * _SIDE_PX * 3
    identity = FrameIdentity(source_uri=view.video_uri, fingerprint="etag-1", sampling=SPEC.sampling)
    return ExtractedVideo(
        identity=identity, was_cached=True, frame_bytes=size_bytes, lookup_ms=1.0, provenance=provenance
    )
