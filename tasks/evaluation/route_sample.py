"""Jobs with known answers, asked both on keyframes and with a dense sampler."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairedAnswers:
    """Columns of J jobs, each of shape (J,).

    Attributes:
        videos: Hash of each job's video, by whose order the jobs are split in halves.
        tasks: Each job's task; empty without one.
        subtasks: Each job's subtask; empty without one.
        margins: Margin of the first answer; infinite if the first pass already used the dense sampler.
        first_right: Whether the first answer is correct.
        second_right: Whether the answer with the dense sampler is correct.
        first_views: Hash of the first answer's view: video, segment and sampler.
        second_views: The same for the dense sampler.
        first_frames: Frames decoded for the first answer; the same for all jobs of a view.
        second_frames: The same for the dense sampler.
        first_s: Seconds of decoding, preprocessing and inference for the first answer.
        second_s: The same for the dense sampler.
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
        """Check that the shapes agree."""
        shapes = {each.name: getattr(self, each.name).shape for each in fields(self)}
        if len(set(shapes.values())) != 1:
            raise ValueError(f"columns have different shapes: {shapes}")

    def is_first_half(self) -> npt.NDArray[np.bool_]:
        """Split the jobs in two by a hash of their videos: no video is in both, whatever the order of jobs."""
        return np.isin(self.videos, np.unique(self.videos)[::2])

    def halves(self) -> tuple[Self, Self]:
        """Return both halves."""
        is_first = self.is_first_half()
        return self.take(is_first), self.take(~is_first)

    def count_first_frames(self) -> int:
        """Sum the frames decoded for all first answers, counting each view once."""
        return _count_frames(self.first_frames, self.first_views)

    def count_second_frames(self, jobs: npt.NDArray[np.bool_]) -> int:
        """Sum the frames decoded for the dense sampler, for the jobs selected by `jobs`, shape (J,)."""
        return _count_frames(self.second_frames[jobs], self.second_views[jobs])

    def take(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Return the selected jobs; `chosen` has shape (J,)."""
        return type(self)(**{each.name: getattr(self, each.name)[chosen] for each in fields(self)})


def _count_frames(frames: npt.NDArray[np.int64], views: npt.NDArray[np.uint64]) -> int:
    _, places = np.unique(views, return_index=True)
    return int(frames[places].sum())
