"""What the benchmark found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks.trade.fitting import asked_twice
from benchmarks.trade.ways import CASCADES, FAITHFUL
from tasks.evaluation.compare import SpecResults, compare
from tasks.evaluation.scores import Cost
from tasks.routing.fit import curve_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.trade.asking import Answers
    from benchmarks.trade.fitting import Fitted
    from tasks.domain import RunSpec
    from tasks.evaluation.scores import Evaluation
    from tasks.routing.fit import Point

_BY = ["way", "task", "subtask", "keyframes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """What each way of asking reached, and what it cost.

    Attributes:
        evaluation: Accuracies with intervals, and paired differences to the model's own sampler.
        cells: Accuracy by way, task, subtask and number of keyframes: the columns `jobs` and `accuracy`.
        work: What each way did by task: the columns `frames_decoded` and `seconds`, decoding and engine.
        fitted: What the cascades and `auto` went by, learnt from other clips.
        curves: For each way that a cascade begins with, what each margin gives on these clips.
    """

    evaluation: Evaluation
    cells: pl.DataFrame = field(repr=False)
    work: pl.DataFrame = field(repr=False)
    fitted: Fitted = field(repr=False)
    curves: Mapping[str, tuple[Point, ...]] = field(repr=False)

    @classmethod
    def of(
        cls,
        manifest: pl.DataFrame,
        answers: Mapping[str, Answers],
        specs: Mapping[str, RunSpec],
        fitted: Fitted,
    ) -> Trade:
        """Put together what all ways answered to one manifest."""
        rows = pl.concat([each.rows.with_columns(way=pl.lit(name)) for name, each in answers.items()])
        judged = rows.join(manifest, on="job_id").with_columns(is_right=pl.col("label") == pl.col("answer"))
        return cls(
            evaluation=compare(
                manifest, [_results(name, answers[name], specs[name]) for name in answers], baseline=FAITHFUL
            ),
            cells=judged.group_by(_BY, maintain_order=True).agg(jobs=pl.len(), accuracy=pl.col("is_right").mean()),
            work=judged.group_by("way", "task", maintain_order=True).agg(
                pl.col("frames_decoded").sum(), seconds=(pl.col("decode_s") + pl.col("engine_s")).sum()
            ),
            fitted=fitted,
            curves={first: curve_of(asked_twice(manifest, answers[first], answers[FAITHFUL])) for first in CASCADES},
        )

    def accuracy(self, way: str, keyframes: int, **group: str) -> float:
        """Give a way's share of right answers on clips of so many keyframes, in a task or subtask."""
        cells = self.cells.filter(way=way, keyframes=keyframes, **group)
        return float(cells.select((pl.col("accuracy") * pl.col("jobs")).sum() / pl.col("jobs").sum()).item())

    def frames_decoded(self, way: str, task: str | None = None) -> int:
        """Count the frames that a way decoded, for one task or both."""
        chosen = {"way": way} | ({"task": task} if task else {})
        return int(self.work.filter(**chosen)["frames_decoded"].sum())

    def seconds(self, way: str) -> float:
        """Add up the seconds of decoding and of the engine that a way took."""
        return float(self.work.filter(way=way)["seconds"].sum())

    def facts(self) -> dict[str, Any]:
        """Lay everything out for JSON."""
        return {
            "evaluation": json.loads(self.evaluation.to_json()),
            "by_keyframes": self.cells.to_dicts(),
            "work": self.work.to_dicts(),
            "fitted": {
                "clips": self.fitted.clips,
                "seed": self.fitted.seed,
                "still": asdict(self.fitted.still),
                "thresholds": [asdict(each) for each in self.fitted.tried],
                "routes": {first: asdict(route) for first, route in self.fitted.routes.items()},
            },
            "curves": {first: [asdict(point) for point in curve] for first, curve in self.curves.items()},
        }


def _results(name: str, answers: Answers, spec: RunSpec) -> SpecResults:
    rows = answers.rows
    return SpecResults(
        name=name,
        spec_id=spec.spec_id,
        model=spec.model.name,
        sampling=spec.sampling.model_dump(mode="json"),
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
