"""One way through all jobs, timed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One pass of a way over all jobs. Loading the model comes before it.

    Attributes:
        jobs: Jobs that were answered.
        began_s: When the first question could be asked, in seconds of the system's clock.
        ended_s: When the last answer was there.
        labels: Index of each job's choice, in the workload's order; empty where nothing is answered.
        prompt_tokens: Of all prompts.
        note: What the way says of itself.
    """

    jobs: int
    began_s: float
    ended_s: float
    labels: tuple[int, ...] = field(default=(), repr=False)
    prompt_tokens: int = 0
    note: str = ""

    @property
    def jobs_per_s(self) -> float:
        """The rate."""
        return self.jobs / (self.ended_s - self.began_s)


class Way(Protocol):
    """A way to the answers. `load` comes first, then any number of passes, then `close`."""

    def load(self) -> None:
        """Do what may not be measured: start processes, load the model, answer a little to warm up."""

    def run(self, number: int) -> Timing:
        """Answer all jobs; `number`, from 1, tells passes apart, so that none lives on what another has cached."""

    def close(self) -> None:
        """End what was started."""
