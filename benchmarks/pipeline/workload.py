"""What every way is given: a model, clips, and the same questions about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tasks.demo.shapes import QUESTIONS
from tasks.domain import Job
from tasks.frames.file import make_frame_file
from tasks.model.prompt import question_of
from tasks.model.questions import Batch
from tasks.video.extract import extract_keyframes
from tasks.video.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.domain import RunSpec
    from tasks.model.questions import EngineConfig

WARM_UP_CLIPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs on clips in a folder, those on one clip side by side.

    Attributes:
        name: The model's.
        engine: How the model is loaded, by every way.
        spec: Frames and wording.
        jobs: Their videos are paths.
        warm_up: Jobs on other clips, which every way answers before its clock starts: the first answers of a
            process take longer, and a run's others do not.
    """

    name: str
    engine: EngineConfig
    spec: RunSpec
    jobs: tuple[Job, ...] = field(repr=False)
    warm_up: tuple[Job, ...] = field(repr=False)

    @property
    def videos(self) -> list[str]:
        """Paths of the clips, each once."""
        return list(dict.fromkeys(job.video_uri for job in self.jobs))


def make_jobs(clips: Sequence[Path], *, questions_per_video: int) -> tuple[Job, ...]:
    """Ask the demo's questions about clips, in turn; at most three of each."""
    asked = list(QUESTIONS.items())
    return tuple(
        Job(job_id=f"{clip.stem}-{number}", video_uri=str(clip.resolve()), prompt=prompt, choices=choices, task=task)
        for place, clip in enumerate(clips)
        for number in range(questions_per_video)
        for task, (prompt, choices) in [asked[(place + number) % len(asked)]]
    )


def warm_up_batch(workload: Workload) -> Batch:
    """Make a batch of the warm-up, its frames extracted here and now."""
    sampling = workload.spec.sampling
    files = {}
    for job in workload.warm_up:
        path = Path(job.video_uri)
        keyframes = extract_keyframes(path, sampling=sampling, limits=Limits())
        files[job.video_uri] = make_frame_file(
            keyframes, source_uri=job.video_uri, fingerprint=path.name, sampling=sampling
        ).data
    questions = tuple(question_of(job, workload.spec) for job in workload.warm_up)
    return Batch(frame_files=files, questions=questions)


def write_manifest(jobs: Sequence[Job], path: Path, *, root_uri: str) -> None:
    """Write jobs as a manifest, their clips below `root_uri`."""
    rows = [
        {
            "job_id": job.job_id,
            "video_uri": f"{root_uri}/{job.video_uri.rpartition('/')[2]}",
            "prompt": job.prompt,
            "choices": list(job.choices),
        }
        for job in jobs
    ]
    pl.DataFrame(rows).write_parquet(path)
