"""Ratios between contenders that a run should reach, and the bottleneck where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.pipeline.contender import ContenderResult

CEILING = "ceiling"
EXTRACTION = "extraction alone"
COLD = "ours, cold cache"
WARM = "ours, warm cache"
UNIFORM = "LLM.chat, opencv"
KEYFRAMES = "LLM.chat, keyframes"

_COLD_SHARE = 0.9
_SATURATED = 0.93


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A measured ratio and the least that it should be.

    Attributes:
        bottleneck: What held the contender up where the target is missed; empty otherwise.
    """

    name: str
    ratio: float
    required: float
    bottleneck: str

    @property
    def is_met(self) -> bool:
        """Whether the ratio is large enough."""
        return self.ratio >= self.required


def check_targets(
    results: Mapping[str, ContenderResult], *, jobs_per_video: float, warm_share: float, gain: float = 1.0
) -> list[Target]:
    """Compare contenders.

    Args:
        results: Results by the names above; targets of missing contenders are left out.
        jobs_per_video: Converts videos per second of extraction to jobs per second.
        warm_share: Share of the ceiling that a warm cache should reach.
        gain: How many times the jobs per second of vLLM's uniform loader ours should reach.
    """
    rate = {name: result.jobs_per_s for name, result in results.items()}
    targets: list[Target] = []

    def compare(contender: str, other: str, other_rate: float, required: float) -> None:
        ratio = rate[contender] / other_rate
        bottleneck = "" if ratio >= required else explain_bottleneck(results[contender])
        targets.append(Target(name=f"{contender} / {other}", ratio=ratio, required=required, bottleneck=bottleneck))

    if {WARM, CEILING} <= rate.keys():
        compare(WARM, CEILING, rate[CEILING], warm_share)
    if {COLD, CEILING, EXTRACTION} <= rate.keys():
        bounds = {CEILING: rate[CEILING], EXTRACTION: rate[EXTRACTION] * jobs_per_video}
        slower = min(bounds, key=bounds.__getitem__)
        compare(COLD, slower, bounds[slower], _COLD_SHARE)
    for contender in (WARM, COLD):
        for other, required in ((UNIFORM, gain), (KEYFRAMES, 1.0)):
            if {contender, other} <= rate.keys():
                compare(contender, other, rate[other], required)
    if {WARM, COLD} <= rate.keys():
        equal = [
            one == other
            for result in (results[WARM], results[COLD])
            for timing in result.timings
            for one, other in zip(timing.labels, results[COLD].timings[0].labels, strict=True)
        ]
        share = sum(equal) / len(equal)
        targets.append(Target(name="equal labels, warm and cold", ratio=share, required=1.0, bottleneck=""))
    return targets


def explain_bottleneck(result: ContenderResult) -> str:
    """Explain what held a contender up, by the utilization of both sides."""
    engine, host = result.engine_utilization or 0.0, result.host_utilization or 0.0
    notes = {timing.note for timing in result.timings if timing.note}
    if result.engine_utilization is None or result.host_utilization is None:
        cause = "processes were not bound to cores, so engine and host cannot be told apart"
    elif host >= _SATURATED > engine:
        cause = "the host's cores are saturated by what feeds the engine"
    elif engine >= _SATURATED:
        cause = "the engine's core is saturated: work other than inference is the loss"
    else:
        cause = "neither side is saturated: one waits for the other"
    shares = f"engine's core {engine:.0%} busy, host's {host:.0%}"
    return " ".join([f"{cause} ({shares}).", *sorted(notes)[:1]])
