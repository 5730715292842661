"""Jobs whose right answer is known, asked from keyframes and losslessly."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AskedTwice:
    """Columns of J jobs, each of shape (J,).

    Attributes:
        videos: A hash of what each job is about, by whose order jobs are cut in halves.
        tasks: The task of each; empty where it has none.
        subtasks: Its subtask; the same.
        margins: Of the first answer; infinite where the job was shown all that it can be shown already.
        first_right: Whether the first answer is the known one.
        second_right: Whether the lossless one is.
        first_views: A hash of what each job was shown first: of a video, a part of it, and a sampler.
        second_views: The same of what it was shown losslessly.
        first_frames: Frames decoded for the first answer; the same for all jobs of a view.
        second_frames: The same for the lossless one.
        first_s: Seconds of decoding, preprocessing and inference for the first answer.
        second_s: The same for the lossless one.
    """

    videos: npt.NDArray[np.uint64]
    tasks: npt.NDArray[np.str_]
    subtasks: npt.NDArray[np.str_]
    margins: npt.NDArray[np.float64]
    first_right: npt.NDArray[np.bool_]
    second_right: npt.NDArray[np.bool_]
    first_views: npt.NDArray[np.uint64]
    second_views: npt.NDArray[np.uint64]
    first_frames: npt.NDArray[np.int64]
    second_frames: npt.NDArray[np.int64]
    first_s: npt.NDArray[np.float64]
    second_s: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        """Check that all columns speak of the same jobs."""
        shapes = {each.name: getattr(self, each.name).shape for each in fields(self)}
        if len(set(shapes.values())) != 1:
            raise ValueError(f"columns of different shapes: {shapes}")

    def is_first_half(self) -> npt.NDArray[np.bool_]:
        """Cut the jobs in two, by a hash of their videos: no video is in both, whatever the jobs' order."""
        return np.isin(self.videos, np.unique(self.videos)[::2])

    def halves(self) -> tuple[Self, Self]:
        """Give both halves."""
        is_first = self.is_first_half()
        return self.take(is_first), self.take(~is_first)

    def count_first_frames(self) -> int:
        """Add up the frames that were decoded for all first answers, those of one view once."""
        return _count_frames(self.first_frames, self.first_views)

    def count_second_frames(self, jobs: npt.NDArray[np.bool_]) -> int:
        """Add up those for the lossless answers of some jobs; `jobs` says of each whether it counts, shape (J,)."""
        return _count_frames(self.second_frames[jobs], self.second_views[jobs])

    def take(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Give some of the jobs; `chosen` has shape (J,)."""
        return type(self)(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


def _count_frames(frames: npt.NDArray[np.int64], views: npt.NDArray[np.uint64]) -> int:
    _, places = np.unique(views, return_index=True)
    return int(frames[places].sum())
