"""Labelled jobs with known answers: the data that a temperature is fitted on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from tasks.calibration.temperature import log_table
from tasks.domain.digest import hash64

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownAnswers:
    """Labelled jobs with known answers.

    Attributes:
        logs: Logarithms of the model's probabilities; shape (J, C), minus infinity past a job's last choice.
        truths: Index of the correct choice; shape (J,).
        videos: Hash of each job's video, by whose order the jobs are split in halves; shape (J,).
    """

    logs: npt.NDArray[np.float64]
    truths: npt.NDArray[np.int64]
    videos: npt.NDArray[np.uint64]

    def __post_init__(self) -> None:
        """Check that the shapes agree."""
        if not (self.logs.ndim == 2 and len(self.logs) == len(self.truths) == len(self.videos)):  # noqa: PLR2004
            raise ValueError(
                f"shapes disagree: logs {self.logs.shape}, truths {self.truths.shape}, videos {self.videos.shape}"
            )

    @classmethod
    def of(cls, rows: Sequence[tuple[Sequence[float], int, str]]) -> Self:
        """Build from each job's probabilities, the index of its correct choice, and its video."""
        return cls(
            logs=log_table([probabilities for probabilities, _, _ in rows]),
            truths=np.array([truth for _, truth, _ in rows], dtype=np.int64),
            # Hash: a video may be a data: URI of any length.
            videos=np.array([hash64(video) for _, _, video in rows], dtype=np.uint64),
        )

    def halves(self) -> tuple[Self, Self]:
        """Split the jobs in two by a hash of their videos: no video is in both, whatever the order of jobs."""
        is_first = np.isin(self.videos, np.unique(self.videos)[::2])
        return self._take(is_first), self._take(~is_first)

    def _take(self, chosen: npt.NDArray[np.bool_]) -> Self:
        return type(self)(logs=self.logs[chosen], truths=self.truths[chosen], videos=self.videos[chosen])
