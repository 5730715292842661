"""What a run cost, and what it gave for that."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

from tasks.domain.ledger import Part

_LOADED = frozenset(Part) - {Part.SETUP, Part.ELSEWHERE, Part.LOAD, Part.UNLOAD, Part.AUDIT}
_HELD = _LOADED | {Part.LOAD, Part.UNLOAD}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """Time, devices and tokens of one run.

    Attributes:
        jobs: Jobs that ended.
        wall_ms: Milliseconds by `Part`; together the run's wall time.
        engines: Engines in processes of their own; `wall_ms` is the mean of them.
        gpus: GPUs that the engines held; 0 on CPUs.
        prompt_tokens: Tokens of all prompts, videos included.
        cached_tokens: Those of them served by the prefix cache.
    """

    jobs: int
    wall_ms: dict[str, float]
    engines: int = 1
    gpus: int
    prompt_tokens: int
    cached_tokens: int

    @property
    def loaded_ms(self) -> float:
        """Milliseconds in which the engine answered, or could have."""
        return fsum(self.wall_ms.get(part, 0.0) for part in _LOADED)  # a set has another order in each process

    @property
    def held_ms(self) -> float:
        """Milliseconds from the engine's start to its end."""
        return fsum(self.wall_ms.get(part, 0.0) for part in _HELD)

    @property
    def jobs_per_s(self) -> float:
        """Jobs per second of the loaded engine: its start takes the same for one job and for a million."""
        return self.jobs * 1e3 / self.loaded_ms if self.loaded_ms else 0.0

    @property
    def jobs_per_hour_held(self) -> float:
        """Jobs per hour for which a GPU, or an engine without one, was held."""
        return self.jobs * 3.6e6 / (self.held_ms * max(self.engines, self.gpus)) if self.held_ms else 0.0

    @property
    def busy(self) -> float:
        """Share of the loaded engine's time in which it answered, 0 to 1."""
        return self._share(Part.ANSWER)

    @property
    def waits(self) -> list[tuple[Part, float]]:
        """Shares of the loaded engine's time by what it waited for, the longest first."""
        shares = [(part, self._share(part)) for part in Part if part in _LOADED and part is not Part.ANSWER]
        return sorted((wait for wait in shares if wait[1]), key=lambda wait: -wait[1])

    def _share(self, part: Part) -> float:
        return self.wall_ms.get(part, 0.0) / self.loaded_ms if self.loaded_ms else 0.0
