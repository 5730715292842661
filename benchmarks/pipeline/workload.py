"""What every contender gets: a model, clips, and the same questions about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from reelabel.extract import extract_local
from reelabel.frames.frame_file import encode_frame_file
from reelabel.limits import Limits
from reelabel_engine.protocol import Batch
from tasks.demo.shapes import QUESTIONS
from tasks.domain import Job
from tasks.model.prompts.prompt import build_question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel_engine.protocol import EngineConfig
    from tasks.domain import RunSpec

WARM_UP_CLIPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs about clips in a folder, grouped by clip.

    Attributes:
        name: Name of the model.
        engine: How every contender loads the model.
        spec: Frames and prompts.
        jobs: Jobs whose videos are local paths.
        warm_up: Jobs about other clips, which every contender answers before its clock starts, because the first
            answers of a process take longer.
    """

    name: str
    engine: EngineConfig
    spec: RunSpec
    jobs: tuple[Job, ...] = field(repr=False)
    warm_up: tuple[Job, ...] = field(repr=False)

    @property
    def videos(self) -> list[str]:
        """Distinct paths of the clips."""
        return list(dict.fromkeys(job.video_uri for job in self.jobs))


def make_jobs(clips: Sequence[Path], *, questions_per_video: int) -> tuple[Job, ...]:
    """Return jobs that ask the demo's questions in turn, at most three per clip."""
    asked = list(QUESTIONS.items())
    return tuple(
        Job(job_id=f"{clip.stem}-{number}", video_uri=str(clip.resolve()), prompt=prompt, choices=choices, task=task)
        for place, clip in enumerate(clips)
        for number in range(questions_per_video)
        for task, (prompt, choices) in [asked[(place + number) % len(asked)]]
    )


def warm_up_batch(workload: Workload) -> Batch:
    """Return a batch of the warm-up jobs, extracting their frames."""
    sampling = workload.spec.sampling
    files = {}
    for job in workload.warm_up:
        path = Path(job.video_uri)
        keyframes = extract_local(path, sampling=sampling, limits=Limits())
        files[job.video_uri] = encode_frame_file(
            keyframes, source_uri=job.video_uri, fingerprint=path.name, sampling=sampling
        ).data
    questions = tuple(build_question(job, workload.spec) for job in workload.warm_up)
    return Batch(frame_files=files, questions=questions)


def write_manifest(jobs: Sequence[Job], path: Path, *, root_uri: str) -> None:
    """Write a manifest of jobs whose clips are below `root_uri`."""
    rows = [
        {
            "job_id": job.job_id,
            "video_uri": f"{root_uri}/{job.video_uri.rpartition('/')[2]}",
            "prompt": job.prompt,
            "choices": list(job.choices),
        }
        for job in jobs
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
