"""The whole benchmark: fits on the clips of one seed, and answers those of another with every candidate."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.harness import Table, progress
from benchmarks.trade.brief import make_brief
from benchmarks.trade.clips import FIT_SEED_OFFSET, fit_clips, keep, kept_trade
from benchmarks.trade.fitting import DENSE, fit, specs_of
from benchmarks.trade.inference import SpecRunner, decode_pool, engine_of, jobs_of
from benchmarks.trade.relevance import measure_relevance
from benchmarks.trade.report import Trade
from tasks.model.identity import read_model_info

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from benchmarks.trade.inference import Answers
    from tasks.domain import RunSpec

_WARM_UP_JOBS = 32


def run(*, clips: int, seed: int, keep_in: str | None, model: str) -> list[Table]:
    """Make the clips, and ask about them with every candidate."""
    with _folder(keep_in) as folder, progress("Making clips") as show:
        manifest = kept_trade(folder, clips=clips, seed=seed)
        fitted_on = kept_trade(folder, clips=fit_clips(clips), seed=seed + FIT_SEED_OFFSET)
        return _measure(manifest, fitted_on, seed + FIT_SEED_OFFSET, model, folder / "engine.log", show).tables()


def run_relevance(*, clips: int, seed: int, keep_in: str | None, model: str) -> list[Table]:
    """Make clips of which a twentieth answers the question, and ask about them."""
    with _folder(keep_in) as folder, progress("Making clips") as show:
        manifest = keep(folder / f"alone-{seed}", clips, lambda target: make_brief(target, clips=clips, seed=seed))
        return measure_relevance(manifest, model=model, folder=folder, on_progress=show)


def _measure(
    manifest: pl.DataFrame,
    fit_manifest: pl.DataFrame,
    fit_seed: int,
    model: str,
    log_path: Path,
    show: Callable[[str], None],
) -> Trade:
    """Ask all questions of one engine."""
    model_info = read_model_info(model)
    show("Loading the model")
    with decode_pool() as pool, engine_of(model_info, log_path) as engine:
        runner = SpecRunner(engine=engine, pool=pool)
        specs = specs_of(model_info.identity)
        runner.run(jobs_of(fit_manifest)[:_WARM_UP_JOBS], specs[DENSE])  # the first answers of a process take longer

        def ask(jobs: pl.DataFrame, name: str, spec: RunSpec) -> Answers:
            show(f"Answering {jobs.height:,} questions with {name}")
            return runner.run(jobs_of(jobs), spec)

        fitted = fit(fit_manifest, model_info.identity, lambda name, spec: ask(fit_manifest, name, spec), seed=fit_seed)
        specs |= fitted.specs_of(model_info.identity)
        answers = {name: ask(manifest, name, spec) for name, spec in specs.items()}
    return Trade.of(manifest, answers, specs, fitted)


@contextmanager
def _folder(kept: str | None) -> Iterator[Path]:
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with TemporaryDirectory(prefix="reelabel-") as folder:
        yield Path(folder)
