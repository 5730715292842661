"""The result and the cost of a run, as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reelabel.text import escape_controls, pluralize
from tasks.domain import RunCost, RunPhase
from tasks.domain.cost import format_price
from tasks.results.summary import describe_rewritten

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from prefect import State
    from sqlalchemy import RowMapping

    from tasks.results.audit import AuditReport

NOTHING_TO_DO = "Nothing to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The result of a run.

    Attributes:
        report: The audit of the jobs of its manifest.
        chosen: Number of jobs that a backfill's selection chose; None for other runs.
        notes: The specs that a backfill selected from and wrote to, and other specs that have matching jobs.
    """

    answered: int
    report: AuditReport
    chosen: int | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        message = str(self.report) if self.answered else f"{NOTHING_TO_DO}{self._why_nothing()}. {self.report}"
        return " ".join([message, *self.notes])

    def _why_nothing(self) -> str:
        if self.chosen is None:
            return ""
        if self.chosen == 0:
            return ": no job matches the selection"
        have, them = ("has", "it") if self.chosen == 1 else ("have", "them")
        what, ask = ("description", "describe") if self.report.describes else ("label", "ask")
        return f": {pluralize(self.chosen, 'chosen job')} {have} a valid {what}; turn on force to {ask} {them} again"


def completed_state(sentence: object) -> State[str]:
    """Return a Completed state whose message is the sentence, instead of Prefect's default."""
    from prefect.states import Completed  # noqa: PLC0415 - commands import this module before they configure Prefect

    message = escape_controls(str(sentence), keep="\n")
    return Completed(message=message, data=message)


_MIN_SHARE = 0.005
_MIN_AHEAD_S = 0.1


def cost_lines(run: Mapping[str, Any] | RowMapping) -> list[tuple[str, str]]:
    """Return a run's cost as names and values; empty if no job ended, or its row lacks these figures."""
    cost = RunCost.of_run(run)
    if cost is None or not cost.jobs or not cost.loaded_ms:
        return []
    lines = [
        ("jobs per second", f"{cost.jobs_per_s:.1f} after engine start; {_per_hour(cost)}"),
        ("engine", _engine(cost)),
    ]
    if cost.prompt_tokens:
        lines.append(("tokens", _tokens(cost)))
    if run["cost"] is not None:
        hours = (f"{format_price(run[f'{kind.lower()}_hours'])} {kind}-hours" for kind in ("GPU", "CPU"))
        lines.append(("cost", f"{format_price(run['cost'])}: {', '.join(hours)}"))
    if run["bottleneck"]:
        lines.append(("bottleneck", run["bottleneck"]))
    if run["videos_rewritten"]:
        lines.append(("rewritten", describe_rewritten(run["videos_rewritten"])))
    return lines


def _per_hour(cost: RunCost) -> str:
    what = "GPU-hour" if cost.gpus else "engine-hour"
    return f"{cost.jobs_per_hour_held:,.0f} per {what} held, including start"


def _engine(cost: RunCost) -> str:
    load_s, ahead_s = cost.wall_ms.get(RunPhase.LOAD, 0.0) / 1e3, cost.ahead_ms / 1e3
    shares = [f"{share:.0%} {part}" for part, share in cost.waits if share >= _MIN_SHARE]
    waited = f"; waited for: {', '.join(shares)}" if shares else ""
    before = f", {ahead_s:.1f} s of them before the run needed it" if ahead_s >= _MIN_AHEAD_S else ""
    return f"{load_s + ahead_s:.1f} s to start{before}, then {cost.busy:.0%} answering{waited}"


def _tokens(cost: RunCost) -> str:
    share = cost.cached_tokens / cost.prompt_tokens if cost.prompt_tokens else 0.0
    return f"{pluralize(cost.prompt_tokens, 'prompt token')}, {cost.cached_tokens:,} of them cached ({share:.0%})"
