"""The workload of all contenders: a model, clips, and questions about them."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from reelabel.extract import extract_local
from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import write_frames
from reelabel.options import Limits
from reelabel_engine.environment import find_python
from reelabel_engine.protocol import Batch
from tasks.demo.shapes import QUESTIONS
from tasks.domain import Job
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings, StoreSettings
    from reelabel_engine.protocol import EngineConfig
    from tasks.domain import RunSpec

WARM_UP_CLIPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs about clips in a folder, grouped by clip.

    Attributes:
        engine: How every contender loads the model.
        spec: Frames and prompts.
        jobs: Jobs whose videos are local paths.
        warm_up: Jobs about other clips, which every contender answers before its clock starts, because the first
            answers of a process take longer.
    """

    engine: EngineConfig
    spec: RunSpec
    jobs: tuple[Job, ...] = field(repr=False)
    warm_up: tuple[Job, ...] = field(repr=False)

    @property
    def videos(self) -> list[str]:
        """Distinct paths of the clips."""
        return list(dict.fromkeys(job.video_uri for job in self.jobs))


def workload_of(settings: Settings, clips: Sequence[Path]) -> Workload:
    """Return the jobs of a run with these settings; the first clips are for the warm-up."""
    from flows.run.spec import make_spec  # noqa: PLC0415 - not in the engine's environment
    from tasks.model.engine.vllm_backend import engine_config  # noqa: PLC0415
    from tasks.model.identity import read_model_info  # noqa: PLC0415

    model_info = read_model_info(str(settings.model.name))
    return Workload(
        engine=engine_config(model_info, settings),
        spec=make_spec(model_info, settings),
        jobs=make_jobs(clips[WARM_UP_CLIPS:]),
        warm_up=make_jobs(clips[:WARM_UP_CLIPS]),
    )


def make_jobs(clips: Sequence[Path]) -> tuple[Job, ...]:
    """Return a job for each clip; they ask the demo's questions in turn."""
    return tuple(
        Job(job_id=clip.stem, video_uri=str(clip.resolve()), prompt=prompt, choices=choices, task=task)
        for clip, (task, (prompt, choices)) in zip(clips, cycle(QUESTIONS.items()), strict=False)
    )


def warm_up_batch(workload: Workload) -> Batch:
    """Return a batch of the warm-up jobs, extracting their frames."""
    sampling = workload.spec.sampling
    files = {}
    for job in workload.warm_up:
        path = Path(job.video_uri)
        keyframes = extract_local(path, sampling=sampling, limits=Limits())
        identity = FrameIdentity(source_uri=job.video_uri, fingerprint=path.name, sampling=sampling)
        files[job.video_uri] = write_frames(keyframes, identity)
    return Batch(frame_files=files, questions=tuple(build_question(job, workload.spec) for job in workload.warm_up))


def upload(workload: Workload, store: StoreSettings, root_uri: str) -> str:
    """Put the videos of all jobs and a manifest of those that are measured on a store; return the manifest's URI."""
    from reelabel.sources.object_store import ObjectStore  # noqa: PLC0415 - not in the engine's environment

    objects, sink = ObjectStore(store), io.BytesIO()
    for path in {job.video_uri for job in (*workload.jobs, *workload.warm_up)}:
        objects.replace(uri_of(path, root_uri), Path(path).read_bytes())
    rows = [
        {
            "job_id": job.job_id,
            "video_uri": uri_of(job.video_uri, root_uri),
            "prompt": job.prompt,
            "choices": list(job.choices),
        }
        for job in workload.jobs
    ]
    pq.write_table(pa.Table.from_pylist(rows), sink)
    objects.replace(f"{root_uri}/manifest.parquet", sink.getvalue())
    return f"{root_uri}/manifest.parquet"


def uri_of(path: str, root_uri: str) -> str:
    return f"{root_uri}/{Path(path).name}"


def versions() -> str:
    """Return the installed versions of what is measured, in the engine's environment and in this one."""
    ours = {package: version(package) for package in ("av", "prefect", "reelabel")}
    return ", ".join(f"{name} {number}" for name, number in {**find_python().versions, **ours}.items())
