"""Accuracy and cost of every candidate."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks.trade.candidates import DENSE, ESCALATED
from benchmarks.trade.fitting import asked_twice
from benchmarks.trade.margins import accuracy_curve
from tasks.evaluation.compare import CandidateResults, compare_candidates
from tasks.evaluation.scores import Cost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.trade.fitting import Fitted
    from benchmarks.trade.inference import Answers
    from tasks.domain import RunSpec
    from tasks.evaluation.route import RoutingPoint
    from tasks.evaluation.scores import Evaluation

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
        """Combine the answers of all candidates to one manifest."""
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
        """Return the seconds of decoding and of the engine."""
        return float(self.work.filter(candidate=candidate)["seconds"].sum())

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "evaluation": json.loads(self.evaluation.to_json()),
            "by_keyframes": self.cells.to_dicts(),
            "work": self.work.to_dicts(),
            "fitted": {
                "clips": self.fitted.clips,
                "seed": self.fitted.seed,
                "needs": [asdict(need) for need in self.fitted.needs],
                "thresholds": [asdict(each) for each in self.fitted.thresholds],
                "routes": {first: asdict(route) for first, route in self.fitted.routes.items()},
            },
            "curves": {first: [asdict(point) for point in curve] for first, curve in self.curves.items()},
        }


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
