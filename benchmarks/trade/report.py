"""Accuracy and cost of every candidate, and their tables."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks.harness import Column, Table
from benchmarks.trade.clips import KEYFRAMES as NUMBERS
from benchmarks.trade.clips import MOTION, SCENE
from benchmarks.trade.fitting import DENSE, ESCALATED, KEYFRAMES, LARGEST_LOSS, accuracy_curve, asked_twice
from tasks.evaluation.compare import CandidateResults, compare_candidates
from tasks.evaluation.scores import Cost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.trade.fitting import Fitted
    from benchmarks.trade.inference import Answers
    from tasks.domain import RunSpec
    from tasks.evaluation.route import RoutingPoint
    from tasks.evaluation.scores import CandidateScore, Difference, Estimate, Evaluation

_ACCURACY = (
    Column("questions", "questions"),
    *(Column(str(number), str(number), ".2f") for number in NUMBERS),
    Column("all, with 95% interval", "all"),
    Column(f"minus {DENSE}", "difference"),
)
_STILL = (
    Column("questions", "questions"),
    Column(KEYFRAMES, "first", ".3f"),
    Column(DENSE, "dense", ".3f"),
    Column("difference, with 95% interval", "difference"),
    Column(f"less than {LARGEST_LOSS:g}", "verdict"),
)
_MARGINS = (
    Column("from", "from"),
    Column("margin", "margin", ".4f"),
    Column("of each half", "halves"),
    Column("accuracy, held out", "accuracy", ".3f"),
    Column(f"{DENSE}, held out", "dense", ".3f"),
    Column("frames, held out", "frames", ".0%"),
)
_COST = (
    Column("candidate", "candidate"),
    Column("accuracy, with 95% interval", "accuracy"),
    Column("frames decoded", "frames_decoded", ","),
    Column(f"of {DENSE}", "share", ".0%"),
    Column("on scenes", "on_scenes", ".0%"),
    Column("wall s", "wall_s", ".1f"),
    Column("jobs/s", "jobs_per_s", ".1f"),
)
_CURVE = (
    Column("margin", "below", ".4f"),
    Column("escalated", "asked_again", ".0%"),
    Column("accuracy", "accuracy", ".3f"),
    Column("frames decoded", "frames_decoded", ","),
    Column(f"of {DENSE}", "share", ".0%"),
    Column("seconds", "seconds", ".1f"),
)
_BY = ["candidate", "task", "subtask", "keyframes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """Results of all candidates.

    Attributes:
        evaluation: Accuracies with intervals, and paired differences to the dense sampler.
        cells: `jobs` and `accuracy` by candidate, task, subtask and number of keyframes.
        work: `frames_decoded` and `seconds` (decoding and engine) by candidate and task.
        fitted: Numbers that escalation and `auto` use, fitted on other clips.
        curves: For each spec to escalate from, the result of each margin on these clips.
    """

    evaluation: Evaluation
    cells: pl.DataFrame = field(repr=False)
    work: pl.DataFrame = field(repr=False)
    fitted: Fitted = field(repr=False)
    curves: Mapping[str, tuple[RoutingPoint, ...]] = field(repr=False)

    @classmethod
    def of(
        cls,
        manifest: pl.DataFrame,
        answers: Mapping[str, Answers],
        specs: Mapping[str, RunSpec],
        fitted: Fitted,
    ) -> Trade:
        rows = pl.concat([each.rows.with_columns(candidate=pl.lit(name)) for name, each in answers.items()])
        judged = rows.join(manifest, on="job_id").with_columns(is_right=pl.col("label") == pl.col("answer"))
        return cls(
            evaluation=compare_candidates(
                manifest, [_results(name, answers[name], specs[name]) for name in answers], baseline=DENSE
            ),
            cells=judged.group_by(_BY, maintain_order=True).agg(jobs=pl.len(), accuracy=pl.col("is_right").mean()),
            work=judged.group_by("candidate", "task", maintain_order=True).agg(
                pl.col("frames_decoded").sum(), seconds=(pl.col("decode_s") + pl.col("engine_s")).sum()
            ),
            fitted=fitted,
            curves={
                first: accuracy_curve(asked_twice(manifest, answers[first], answers[DENSE])) for first in ESCALATED
            },
        )

    def accuracy(self, candidate: str, keyframes: int, **group: str) -> float:
        """Return the share of right answers on clips with a number of keyframes, for a task or subtask."""
        cells = self.cells.filter(candidate=candidate, keyframes=keyframes, **group)
        return float(cells.select((pl.col("accuracy") * pl.col("jobs")).sum() / pl.col("jobs").sum()).item())

    def frames_decoded(self, candidate: str, task: str | None = None) -> int:
        """Return the number of frames decoded for one task or both."""
        chosen = {"candidate": candidate} | ({"task": task} if task else {})
        return int(self.work.filter(**chosen)["frames_decoded"].sum())

    def seconds(self, candidate: str) -> float:
        return float(self.work.filter(candidate=candidate)["seconds"].sum())

    def tables(self) -> list[Table]:
        """Tabulate accuracies, what was fitted on other clips, cost, and escalation by its margin."""
        specs = self.evaluation.specs
        fitted = f"Fitted on {self.fitted.clips:,} other clips, seed {self.fitted.seed:,}"
        return [
            *(
                Table(f"{spec.name}: accuracy by number of keyframes", self._accuracies(spec.name), _ACCURACY)
                for spec in specs
            ),
            Table(f"{fitted}: what {KEYFRAMES} lose", self._needs(), _STILL),
            Table(f"{fitted}: margins below which to ask again", self._margins(), _MARGINS),
            Table("Cost", [self._cost(spec) for spec in specs], _COST),
            *(
                Table(f"{first}, then {DENSE} where the margin is below", self._curve(first), _CURVE)
                for first in self.curves
            ),
        ]

    def _accuracies(self, candidate: str) -> list[dict[str, Any]]:
        rows = []
        for task in (SCENE, MOTION):
            for score in (*self.evaluation.tasks, *self.evaluation.subtasks):
                if (score.spec, score.task) == (candidate, task):
                    group = {name: value for name, value in (("task", task), ("subtask", score.subtask)) if value}
                    row: dict[str, Any] = {str(number): self.accuracy(candidate, number, **group) for number in NUMBERS}
                    difference = signed_cell(score.difference) if score.difference else None
                    row |= {"questions": score.subtask or task, "all": share_cell(score.accuracy)}
                    rows.append(row | {"difference": difference})
        return rows

    def _needs(self) -> list[dict[str, Any]]:
        return [
            {
                "questions": need.subtask or need.task,
                "first": need.first,
                "dense": need.dense,
                "difference": signed_cell(need.difference),
                "verdict": "surely" if need.is_still else "not surely",
            }
            for need in self.fitted.needs
        ]

    def _margins(self) -> list[dict[str, Any]]:
        return [
            {
                "from": first,
                "margin": route.below,
                "halves": " ".join(f"{below:.4f}" for below in route.half_below),
                "accuracy": route.held_out.accuracy,
                "dense": route.dense_accuracy,
                "frames": route.held_out.frames_decoded / route.dense_frames,
            }
            for first, route in self.fitted.routes.items()
        ]

    def _cost(self, spec: CandidateScore) -> dict[str, Any]:
        assert spec.accuracy is not None
        return {
            "candidate": spec.name,
            "accuracy": share_cell(spec.accuracy),
            "frames_decoded": self.frames_decoded(spec.name),
            "share": self.frames_decoded(spec.name) / self.frames_decoded(DENSE),
            "on_scenes": self.frames_decoded(spec.name, SCENE) / self.frames_decoded(DENSE, SCENE),
            "wall_s": spec.cost.wall_s,
            "jobs_per_s": spec.cost.jobs_per_s,
        }

    def _curve(self, first: str) -> list[dict[str, Any]]:
        dense = self.frames_decoded(DENSE)
        return [{**asdict(point), "share": point.frames_decoded / dense} for point in self.curves[first]]


def _results(name: str, answers: Answers, spec: RunSpec) -> CandidateResults:
    rows = answers.rows
    return CandidateResults(
        name=name,
        spec_id=spec.spec_id,
        model=spec.model.name,
        sampling=spec.sampling.to_dict(),
        labels=rows,
        cost=Cost(
            wall_s=answers.wall_s,
            jobs_per_s=len(rows) / answers.wall_s,
            videos=len(rows),
            videos_cached=0,
            frames_decoded=int(rows["frames_decoded"].sum()),
            decode_s=float(rows["decode_s"].sum()),
            engine_s=float(rows["engine_s"].sum()),
        ),
    )


def share_cell(share: Estimate | None) -> str:
    return f"{share.value:.3f} ({share.low:.3f} to {share.high:.3f})" if share else ""


def signed_cell(difference: Difference) -> str:
    return f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})"
