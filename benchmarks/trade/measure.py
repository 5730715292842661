"""The whole benchmark: fits on the clips of one seed, and answers those of another with every candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import Table, progress
from benchmarks.trade.brief import make_brief
from benchmarks.trade.clips import FIT_SEED_OFFSET, fit_clips, keep, kept_trade
from benchmarks.trade.fitting import DENSE, fit, specs_of
from benchmarks.trade.inference import SpecRunner, decode_pool, engine_of, jobs_of
from benchmarks.trade.relevance import measure_relevance
from benchmarks.trade.report import Trade
from tasks.model.identity import TINY_MODEL, read_model_info

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from benchmarks.trade.inference import Answers
    from tasks.domain import RunSpec

_WARM_UP_JOBS = 32


def run(folder: Path, *, clips: int, seed: int) -> list[Table]:
    """Make the clips, and ask about them with every candidate."""
    with progress("Making clips") as show:
        manifest = kept_trade(folder, clips=clips, seed=seed)
        fit_seed = seed + FIT_SEED_OFFSET
        fitted_on = kept_trade(folder, clips=fit_clips(clips), seed=fit_seed)
        show("Loading the model")
        model = read_model_info(str(TINY_MODEL))
        with decode_pool() as pool, engine_of(model, folder / "engine.log") as engine:
            runner, specs = SpecRunner(engine=engine, pool=pool), specs_of(model.identity)
            runner.run(jobs_of(fitted_on)[:_WARM_UP_JOBS], specs[DENSE])  # the first answers of a process take longer

            def ask(jobs: pl.DataFrame, name: str, spec: RunSpec) -> Answers:
                show(f"Answering {jobs.height:,} questions with {name}")
                return runner.run(jobs_of(jobs), spec)

            fitted = fit(fitted_on, model.identity, lambda name, spec: ask(fitted_on, name, spec), seed=fit_seed)
            specs |= fitted.specs_of(model.identity)
            answers = {name: ask(manifest, name, spec) for name, spec in specs.items()}
        return Trade.of(manifest, answers, specs, fitted).tables()


def run_relevance(folder: Path, *, clips: int, seed: int) -> list[Table]:
    """Make clips of which a twentieth answers the question, and ask about them."""
    with progress("Making clips") as show:
        manifest = keep(folder / f"alone-{seed}", clips, lambda target: make_brief(target, clips=clips, seed=seed))
        return measure_relevance(manifest, folder=folder, on_progress=show)
