"""The task of a script, and the report of its results; uses only the standard library.

A script's lines on standard output are JSON: `began`, once its libraries and models are loaded, then one line for each
row.
"""

from __future__ import annotations

import ctypes
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sized

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a script works.

    Attributes:
        endpoint: URL of the S3 server.
        key: Access key.
        secret: Secret key.
        cores: Cores to use.
        folder: Folder for what the script stores; what an earlier run has left there may be used.
    """

    endpoint: str
    key: str
    secret: str
    cores: int
    folder: str


@dataclass(frozen=True, kw_only=True)
class FrameJob(Place):
    """Frames of videos on S3.

    Attributes:
        uris: The videos, `s3://...`.
        choice: `keyframes`, or `uniform`, spread evenly.
        frames: Frames wanted of each video.
        start_s: Start of the part of the videos that is asked about, in seconds.
        end_s: Its end.
        fps: Frames per second of the videos.
        is_whole: Whether the part is all of the video.
    """

    uris: list[str]
    choice: str
    frames: int
    start_s: float
    end_s: float
    fps: float
    is_whole: bool

    @property
    def step_s(self) -> float:
        """Seconds between two uniform frames."""
        return (self.end_s - self.start_s) / self.frames

    def indices(self) -> list[int]:
        """Return the numbers of uniform frames, each in the middle of its share of the part."""
        return [round((self.start_s + (number + 0.5) * self.step_s) * self.fps) for number in range(self.frames)]


@dataclass(frozen=True, kw_only=True)
class QuestionJob(Place):
    """Questions about videos on S3, each answered by one token of a model.

    Attributes:
        table: Folder of Parquet files with a row for each question: `job_id`, `video_uri`, `prompt`, `choices`; `url`,
            at which anyone may read the video, and `text`, the prompt with its choices as letters.
        resumable: Whether another run should be able to continue this one if it dies.
        frames: Frames that the model is shown.
        model: Folder of the model.
        engine: Arguments of vLLM's engine.
        sampling: Arguments of vLLM's sampling.
        python: Interpreter that has vLLM.
    """

    table: str
    resumable: bool
    frames: int
    model: str
    engine: dict[str, Any]
    sampling: dict[str, Any]
    python: str


@dataclass(frozen=True, kw_only=True)
class DescriptionJob(FrameJob):
    """Videos on S3 whose frames are embedded; then they are tagged, or searched by text.

    Attributes:
        table: Parquet file with a row for each: `job_id`, `video_uri`.
        searched: Whether the texts are searched for, by what an earlier run has left; otherwise, they are tags.
        texts: The texts, in lower case.
        model: Folder of the model.
        dimensions: Size of its vectors.
    """

    table: str
    searched: bool
    texts: list[str]
    model: str
    dimensions: int


Asked = TypeVar("Asked", bound=Place)


def read_job(kind: type[Asked]) -> Asked:
    """Read what is asked for, and adopt the orphans below this process from now on: the bench counts and ends them."""
    adopt_orphans()
    return kind(**json.loads(sys.stdin.readline()))


def adopt_orphans() -> None:
    """Become the parent of all processes below this one whose parents end."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pick_evenly(things: Sized, count: int) -> list[int]:
    """Return at most `count` indices that spread over `things`, the first and last among them."""
    if count >= len(things):
        return list(range(len(things)))
    return [round(number * (len(things) - 1) / max(1, count - 1)) for number in range(count)]


def began() -> None:
    """Report that libraries and models are loaded, and the work begins."""
    _report(event="began")


def report_progress(rows: int) -> None:
    """Report how many rows have been answered so far, by which the bench kills a run halfway."""
    _report(event="progress", rows=rows)


def report(uri: str, frames: int, *, given: int, error: str = "") -> None:
    """Report how many frames of a video the script has, and how many the library gave, before the script chose."""
    _report(event="row", id=uri, frames=frames, given=given, error=error)


def report_answer(job_id: str, letter: str, *, is_new: bool = True, error: str = "") -> None:
    """Report the answer to one question; it is new if this run has asked, and not an earlier one."""
    _report(event="row", id=job_id, letter=letter, is_new=is_new, error=error)


def report_tag(uri: str, tag: str, *, vectors: int, error: str = "") -> None:
    """Report the tag that fits a video best, and of how many of its frames there are vectors."""
    _report(event="row", id=uri, tag=tag, vectors=vectors, error=error)


def report_found(text: str, uri: str) -> None:
    """Report the URI of the video that a search has found first."""
    _report(event="row", id=text, found=uri, error="")


def _report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)
