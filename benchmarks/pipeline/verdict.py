"""What is to be reached, and what stands in the way where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.pipeline.rounds import Row

CEILING = "ceiling"
EXTRACTION = "extraction alone"
COLD = "ours, cold cache"
WARM = "ours, warm cache"
UNIFORM = "LLM.chat, opencv"
KEYFRAMES = "LLM.chat, keyframes"

_COLD_SHARE = 0.9
_BUSY = 0.93


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One ratio beside what it should be.

    Attributes:
        limit: What held the way up, where the ratio falls short; empty otherwise.
    """

    name: str
    ratio: float
    wanted: float
    limit: str

    @property
    def is_reached(self) -> bool:
        """Whether the ratio is large enough."""
        return self.ratio >= self.wanted


def judge(rows: Mapping[str, Row], *, jobs_per_video: float, warm_share: float) -> list[Verdict]:
    """Compare ways.

    Args:
        rows: By the names above; verdicts on ways that are missing are left out.
        jobs_per_video: Makes extraction's videos a second jobs a second.
        warm_share: Of the ceiling, what the warm cache should reach.
    """
    rate = {name: row.jobs_per_s for name, row in rows.items()}
    verdicts: list[Verdict] = []

    def compare(way: str, other: str, other_rate: float, wanted: float) -> None:
        ratio = rate[way] / other_rate
        limit = "" if ratio >= wanted else name_limit(rows[way])
        verdicts.append(Verdict(name=f"{way} / {other}", ratio=ratio, wanted=wanted, limit=limit))

    if {WARM, CEILING} <= rate.keys():
        compare(WARM, CEILING, rate[CEILING], warm_share)
    if {COLD, CEILING, EXTRACTION} <= rate.keys():
        bounds = {CEILING: rate[CEILING], EXTRACTION: rate[EXTRACTION] * jobs_per_video}
        slower = min(bounds, key=bounds.__getitem__)
        compare(COLD, slower, bounds[slower], _COLD_SHARE)
    for way in (WARM, COLD):
        for other in (UNIFORM, KEYFRAMES):
            if {way, other} <= rate.keys():
                compare(way, other, rate[other], 1.0)
    if {WARM, COLD} <= rate.keys():
        alike = [
            one == other
            for way in (rows[WARM], rows[COLD])
            for timing in way.timings
            for one, other in zip(timing.labels, rows[COLD].timings[0].labels, strict=True)
        ]
        verdicts.append(
            Verdict(name="labels alike, warm and cold", ratio=sum(alike) / len(alike), wanted=1.0, limit="")
        )
    return verdicts


def name_limit(row: Row) -> str:
    """Say what held a way up, by who was busy while it went."""
    engine, host = row.engine_busy or 0.0, row.host_busy or 0.0
    said = {timing.note for timing in row.timings if timing.note}
    if row.engine_busy is None or row.host_busy is None:
        cause = "cores were not bound, so nobody can be told from the other"
    elif host >= _BUSY > engine:
        cause = "the host's cores are the limit: whatever feeds the engine has to share them"
    elif engine >= _BUSY:
        cause = "the engine's core has no time left: what it does besides computing is the loss"
    else:
        cause = "neither side is busy all the time: one waits for the other"
    shares = f"engine's core {engine:.0%} busy, host's {host:.0%}"
    return " ".join([f"{cause} ({shares}).", *sorted(said)[:1]])
