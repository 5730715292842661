"""Tables of the benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.console import figures_table
from benchmarks.trade.candidates import DENSE, KEYFRAMES
from benchmarks.trade.margins import LARGEST_LOSS
from benchmarks.trade.mix import KEYFRAMES as NUMBERS
from benchmarks.trade.mix import MOTION, SCENE

if TYPE_CHECKING:
    from rich.table import Table

    from benchmarks.trade.fitting import Fitted
    from benchmarks.trade.report import Trade
    from tasks.evaluation.scores import CandidateScore, Difference, GroupScore, Proportion


def still_table(fitted: Fitted) -> Table:
    """Tabulate what each kind of question loses with keyframes, on the clips to fit on."""
    title = f"Fitted on {fitted.clips:,} other clips, seed {fitted.seed:,}: what {KEYFRAMES} lose"
    bound = f"less than {LARGEST_LOSS:g}"
    table = figures_table(title, ("questions", KEYFRAMES, DENSE, "difference, with 95% interval", bound))
    for need in fitted.needs:
        verdict = "surely" if need.is_still else "not surely"
        table.add_row(
            need.subtask or need.task, f"{need.first:.3f}", f"{need.dense:.3f}", signed_cell(need.difference), verdict
        )
    return table


def threshold_table(fitted: Fitted) -> Table:
    """Tabulate other coverage thresholds, on the motion questions of the clips to fit on."""
    title = f"{fitted.clips:,} other clips, seed {fitted.seed:,}: motion questions, one coverage threshold at a time"
    table = figures_table(title, ("threshold", "keyframes sufficient", "accuracy", f"frames of {DENSE}"))
    for result in fitted.thresholds:
        share = result.frames_decoded / fitted.thresholds[0].frames_decoded
        table.add_row(result.name, f"{result.by_keyframes:.0%}", f"{result.accuracy:.3f}", f"{share:.0%}")
    return table


def margin_table(fitted: Fitted) -> Table:
    """Tabulate the fitted margins, with their results on held-out halves of the clips."""
    title = f"Fitted on {fitted.clips:,} other clips, seed {fitted.seed:,}: margins below which to ask again"
    held_out = ("accuracy, held out", f"{DENSE}, held out", "frames, held out")
    table = figures_table(title, ("from", "margin", "of each half", *held_out))
    for first, route in fitted.routes.items():
        table.add_row(
            first,
            f"{route.below:.4f}",
            " ".join(f"{below:.4f}" for below in route.half_below),
            f"{route.held_out.accuracy:.3f}",
            f"{route.dense_accuracy:.3f}",
            f"{route.held_out.frames_decoded / route.dense_frames:.0%}",
        )
    return table


def accuracy_table(trade: Trade, candidate: str) -> Table:
    """Tabulate accuracies by task and subtask (rows) and number of keyframes (columns)."""
    headings = ("questions", *map(str, NUMBERS), "all, with 95% interval", f"minus {DENSE}")
    table = figures_table(f"{candidate}: accuracy by number of keyframes", headings)
    evaluation = trade.evaluation
    for task in (SCENE, MOTION):
        scores = [*evaluation.tasks, *evaluation.subtasks]
        for score in (score for score in scores if score.spec == candidate and score.task == task):
            table.add_row(*_accuracy_cells(trade, score), style="bold" if score.subtask is None else None)
    return table


def cost_table(trade: Trade) -> Table:
    """Tabulate cost, compared with the dense sampler."""
    headings = ("accuracy, with 95% interval", "frames decoded", f"of {DENSE}", "on scenes", "wall s", "jobs/s")
    table = figures_table("Cost", ("candidate", *headings))
    for spec in trade.evaluation.specs:
        table.add_row(*_cost_cells(trade, spec))
    return table


def curve_table(trade: Trade, first: str) -> Table:
    """Tabulate escalation to the dense sampler, by the margin below which it happens."""
    all_frames = trade.frames_decoded(DENSE)
    headings = ("margin", "asked again", "accuracy", "frames decoded", f"of {DENSE}", "seconds")
    table = figures_table(f"{first}, then {DENSE} where the margin is below", headings)
    for point in trade.curves[first]:
        table.add_row(
            f"{point.below:.4f}",
            f"{point.asked_again:.0%}",
            f"{point.accuracy:.3f}",
            f"{point.frames_decoded:,}",
            f"{point.frames_decoded / all_frames:.0%}",
            f"{point.seconds:.1f}",
        )
    return table


def _accuracy_cells(trade: Trade, score: GroupScore) -> list[str]:
    group = {name: value for name, value in (("task", score.task), ("subtask", score.subtask)) if value}
    shares = [trade.accuracy(score.spec, number, **group) for number in NUMBERS]
    return [
        score.subtask or f"{score.task}",
        *(f"{share:.2f}" for share in shares),
        share_cell(score.accuracy),
        signed_cell(score.difference) if score.difference else "",
    ]


def _cost_cells(trade: Trade, spec: CandidateScore) -> list[str]:
    assert spec.accuracy is not None
    all_share, scene_share = (
        trade.frames_decoded(spec.name, task) / trade.frames_decoded(DENSE, task) for task in (None, SCENE)
    )
    return [
        spec.name,
        share_cell(spec.accuracy),
        f"{trade.frames_decoded(spec.name):,}",
        f"{all_share:.0%}",
        f"{scene_share:.0%}",
        f"{spec.cost.wall_s:.1f}",
        f"{spec.cost.jobs_per_s:.1f}",
    ]


def share_cell(share: Proportion) -> str:
    """Return a share with its interval."""
    return f"{share.value:.3f} ({share.low:.3f} to {share.high:.3f})"


def signed_cell(difference: Difference) -> str:
    """Return a difference with its interval."""
    return f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
