"""Answers the benchmark's questions with one spec: extraction and engine as in a run, without a database."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from reelabel.cores import usable_cores
from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import write_frames
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import dense_pass
from reelabel_engine.protocol import Batch, EngineConfig
from tasks.domain import Answer, Job
from tasks.domain.passes import choose_pass, sampling_of_pass
from tasks.model.engine.process import EngineProcess
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reelabel.result import Frames
    from reelabel.sampling.options import Sampling
    from tasks.domain import RunSpec
    from tasks.model.identity import ModelInfo

_BATCH_JOBS = 32
_MAX_CONCURRENT_BATCHES = 3

ANSWER_SCHEMA: dict[str, Any] = {
    "job_id": pl.String,
    "label": pl.String,
    "probabilities": pl.List(pl.Float64),
    "choice_mass": pl.Float64,
    "margin": pl.Float64,
    "sampler": pl.String,
    "frames_decoded": pl.Int64,
    "decode_s": pl.Float64,
    "engine_s": pl.Float64,
    "times_ms": pl.List(pl.Int64),
}
_SUMS = ("frames_decoded", "decode_s", "engine_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers of one spec.

    Attributes:
        rows: One row per job, with the columns of ANSWER_SCHEMA.
        wall_s: Seconds from the first frame to the last answer.
    """

    rows: pl.DataFrame = field(repr=False)
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRunner:
    """A loaded engine and decoding processes, shared by all specs."""

    engine: EngineProcess
    pool: DecodePool

    def run(self, jobs: Sequence[Job], spec: RunSpec, *, samplings: Mapping[str, Sampling] | None = None) -> Answers:
        """Answer every job from freshly decoded frames, with several batches in flight.

        `samplings` is the sampling of each job, by its id, if the spec's depends on what is asked.
        """
        began_s = time.perf_counter()
        batches = [list(jobs[start : start + _BATCH_JOBS]) for start in range(0, len(jobs), _BATCH_JOBS)]
        with ThreadPoolExecutor(usable_cores()) as decoders, ThreadPoolExecutor(_MAX_CONCURRENT_BATCHES) as submitters:
            answered = submitters.map(lambda batch: self._run_batch(batch, spec, decoders, samplings), batches)
            rows = list(chain.from_iterable(answered))
        return Answers(rows=pl.DataFrame(rows, schema=ANSWER_SCHEMA), wall_s=time.perf_counter() - began_s)

    def _run_batch(
        self,
        jobs: list[Job],
        spec: RunSpec,
        decoders: ThreadPoolExecutor,
        samplings: Mapping[str, Sampling] | None,
    ) -> list[dict[str, Any]]:
        sampling = spec.sampling
        if samplings:
            return self._answer(jobs, spec, [samplings[job.job_id] for job in jobs], decoders)
        rows = self._answer(
            jobs, spec, [sampling_of_pass(sampling, choose_pass(sampling, job)) for job in jobs], decoders
        )
        below = sampling.escalate_below if isinstance(sampling.escalate_below, float) else 0.0
        unsure = [place for place, row in enumerate(rows) if row["sampler"] == "keyframes" and row["margin"] < below]
        again = self._answer([jobs[place] for place in unsure], spec, [dense_pass(sampling)] * len(unsure), decoders)
        for place, row in zip(unsure, again, strict=True):
            rows[place] = row | {name: rows[place][name] + row[name] for name in _SUMS}
        return rows

    def _answer(
        self, jobs: list[Job], spec: RunSpec, samplings: list[Sampling], decoders: ThreadPoolExecutor
    ) -> list[dict[str, Any]]:
        """Answer jobs, each with its own sampling."""
        if not jobs:
            return []
        seen = list(decoders.map(self._extract, jobs, samplings))
        files = {
            job.video_uri: write_frames(
                frames, FrameIdentity(source_uri=job.video_uri, fingerprint=job.job_id, sampling=sampling)
            )
            for job, frames, sampling in zip(jobs, seen, samplings, strict=True)
        }
        questions = tuple(build_question(job, spec) for job in jobs)
        replies = self.engine.answer(Batch(frame_files=files, questions=questions))
        return [_row(*each) for each in zip(jobs, seen, replies, strict=True)]

    def _extract(self, job: Job, sampling: Sampling) -> Frames:
        return self.pool.extract(Path(job.video_uri), sampling=sampling, limits=Limits())


def decode_pool() -> DecodePool:
    return DecodePool(processes=usable_cores(), timeout_s=60, memory_mib=4096)


def engine_of(model_info: ModelInfo, log_path: Path, **options: Any) -> EngineProcess:  # noqa: ANN401 - of EngineConfig
    """Return an engine that has yet to be started; in float32, answers do not depend on their batch."""
    config = EngineConfig(model=model_info.location, dtype="float32", **options)
    return EngineProcess(config, log_path=log_path, start_timeout_s=600)


def jobs_of(manifest: pl.DataFrame) -> list[Job]:
    asked = manifest.select("job_id", "video_uri", "prompt", "choices", "answer", "task", "subtask")
    return [Job(**row | {"choices": tuple(row["choices"])}) for row in asked.to_dicts()]


def _row(job: Job, frames: Frames, reply: object) -> dict[str, Any]:
    assert isinstance(reply, Answer), f"the engine rejected {job.job_id}: {reply}"
    assert reply.choice_index is not None
    return {
        "job_id": job.job_id,
        "label": job.choices[reply.choice_index],
        "probabilities": list(reply.probabilities),
        "choice_mass": reply.choice_mass,
        "margin": reply.margin,
        "sampler": frames.sampler,
        "frames_decoded": frames.cost.frames_decoded,
        "decode_s": frames.cost.decode_ms / 1e3,
        "engine_s": reply.inference_ms / 1e3,
        "times_ms": (frames.selection.time_s * 1e3).round().astype(np.int64).tolist(),
    }
