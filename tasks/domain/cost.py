"""What a run cost, and its throughput."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from tasks.domain.ledger import RunPhase

_LOADED = frozenset(RunPhase) - {RunPhase.SETUP, RunPhase.ELSEWHERE, RunPhase.LOAD, RunPhase.UNLOAD, RunPhase.AUDIT}
_HELD = _LOADED | {RunPhase.LOAD, RunPhase.UNLOAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """Time, devices and tokens of one run.

    Attributes:
        jobs: Jobs that ended.
        wall_ms: Milliseconds by `RunPhase`; their sum is the run's wall time.
        engines: Number of engine processes; `wall_ms` is their mean.
        gpus: GPUs that the engines held; 0 on CPUs.
        prompt_tokens: Tokens of all prompts, including videos.
        cached_tokens: Those of them served from the prefix cache.
    """

    jobs: int
    wall_ms: dict[str, float]
    engines: int = 1
    gpus: int
    prompt_tokens: int
    cached_tokens: int

    @property
    def loaded_ms(self) -> float:
        """Milliseconds for which the engine was loaded, whether it answered or waited."""
        return fsum(self.wall_ms.get(part, 0.0) for part in _LOADED)  # exact in any order: that of a set varies

    @property
    def held_ms(self) -> float:
        """Milliseconds for which the engine was held, from its start to its end."""
        return fsum(self.wall_ms.get(part, 0.0) for part in _HELD)

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second of the loaded engine; its start is excluded, as it does not depend on the number of jobs."""
        return self.jobs * 1e3 / self.loaded_ms if self.loaded_ms else 0.0

    @property
    def jobs_per_hour_held(self) -> float:
        """Jobs per GPU-hour held, or per engine-hour on CPUs."""
        return self.jobs * 3.6e6 / (self.held_ms * max(self.engines, self.gpus)) if self.held_ms else 0.0

    @property
    def busy(self) -> float:
        """Fraction of the loaded time in which the engine answered, 0 to 1."""
        return self._share(RunPhase.ANSWER)

    @property
    def waits(self) -> list[tuple[RunPhase, float]]:
        """Fractions of the loaded time by what the engine waited for, the longest first."""
        shares = [(part, self._share(part)) for part in RunPhase if part in _LOADED and part is not RunPhase.ANSWER]
        return sorted((wait for wait in shares if wait[1]), key=lambda wait: -wait[1])

    def _share(self, part: RunPhase) -> float:
        return self.wall_ms.get(part, 0.0) / self.loaded_ms if self.loaded_ms else 0.0
