"""The whole benchmark: fit on the clips of one seed, ask about those of another with every candidate, and print."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.console import OUT, PROGRESS, print_json
from benchmarks.trade.brief import make_brief
from benchmarks.trade.candidates import DENSE, specs_of
from benchmarks.trade.chart import draw
from benchmarks.trade.clips import FIT_SEED_OFFSET, fit_clips, keep, kept_trade, make_trade
from benchmarks.trade.fitting import fit
from benchmarks.trade.inference import SpecRunner, jobs_of
from benchmarks.trade.pruning import measure_pruning, pruning_json, pruning_table, score
from benchmarks.trade.relevance import measure_relevance
from benchmarks.trade.relevance_tables import compared_table, seen_table
from benchmarks.trade.report import Trade
from benchmarks.trade.tables import accuracy_table, cost_table, curve_table, margin_table, still_table, threshold_table
from reelabel.cores import usable_cores
from reelabel.pool.decode_pool import DecodePool
from reelabel_engine.protocol import EngineConfig
from tasks.demo.actors import SIDE_PX
from tasks.demo.clips import MANIFEST_NAME
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import read_model_card

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from benchmarks.trade.inference import Answers
    from tasks.domain import RunSpec

_START_TIMEOUT_S = 600.0
_DECODE_TIMEOUT_S = 60.0
_DECODE_MIB = 4096
_WARM_UP_JOBS = 32


def write_clips(folder: Path, *, clips: int, seed: int) -> None:
    """Write clips and manifest, and print where."""
    jobs = make_trade(folder, clips=clips, seed=seed)
    OUT.print(f"Wrote {len(jobs):,} clips and {folder / MANIFEST_NAME}.", soft_wrap=True)


def run(*, clips: int, seed: int, keep_in: str | None, model: str, as_json: bool, plot: str | None) -> None:
    """Make the clips, measure, print tables or JSON, and draw a chart if asked to."""
    with _folder(keep_in) as folder, PROGRESS.status("Making clips") as status:
        manifest = kept_trade(folder, clips=clips, seed=seed)
        fit_seed = seed + FIT_SEED_OFFSET
        trade = measure(
            manifest,
            kept_trade(folder, clips=fit_clips(clips), seed=fit_seed),
            fit_seed=fit_seed,
            model=model,
            log_path=folder / "engine.log",
            on_progress=status.update,
        )
    if plot:
        Path(plot).write_text(draw(trade))
    if as_json:
        print_json(trade.to_json())
    else:
        _print(trade)


def run_pruning(*, clips: int, seed: int, keep_in: str | None, model: str, as_json: bool) -> None:
    """Make the clips, ask about them with and without pruning, and print a table or JSON."""
    with _folder(keep_in) as folder, PROGRESS.status("Making clips") as status:
        manifest = kept_trade(folder, clips=clips, seed=seed)
        measured = measure_pruning(manifest, model=model, log_folder=folder, on_progress=status.update)
    scores = score(manifest, measured)
    if as_json:
        print_json(pruning_json(scores, measured))
    else:
        OUT.print(pruning_table(scores, measured))


def run_relevance(*, clips: int, seed: int, keep_in: str | None, model: str, as_json: bool) -> None:
    """Make clips of which a twentieth answers the question, ask about them, and print tables or JSON."""
    with _folder(keep_in) as folder, PROGRESS.status("Making clips") as status:
        manifest = keep(folder / f"brief-{seed}", clips, lambda target: make_brief(target, clips=clips, seed=seed))
        trade = measure_relevance(manifest, model=model, folder=folder, on_progress=status.update)
    if as_json:
        print_json(trade.to_json())
    else:
        OUT.print(seen_table(trade))
        OUT.print(compared_table(trade))


def measure(
    manifest: pl.DataFrame,
    fit_manifest: pl.DataFrame,
    *,
    fit_seed: int,
    model: str,
    log_path: Path,
    on_progress: Callable[[str], None],
) -> Trade:
    """Ask all questions of one engine.

    Args:
        manifest: Jobs to measure.
        fit_manifest: Jobs to fit on.
        fit_seed: Seed of their clips.
        model: Folder or hub name.
        log_path: File for the engine's log.
        on_progress: Called with a description of each step.
    """
    card = read_model_card(model)
    config = EngineConfig(model=card.location, dtype="float32", max_pixels=SIDE_PX**2)
    on_progress("Loading the model")
    with (
        DecodePool(processes=usable_cores(), timeout_s=_DECODE_TIMEOUT_S, memory_mib=_DECODE_MIB) as pool,
        EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as engine,
    ):
        runner = SpecRunner(engine=engine, pool=pool)
        specs = specs_of(card.identity)
        runner.run(jobs_of(fit_manifest)[:_WARM_UP_JOBS], specs[DENSE])  # the first answers of a process take longer

        def ask(jobs: pl.DataFrame, name: str, spec: RunSpec) -> Answers:
            on_progress(f"Answering {jobs.height:,} questions with {name}")
            return runner.run(jobs_of(jobs), spec)

        fitted = fit(fit_manifest, card.identity, lambda name, spec: ask(fit_manifest, name, spec), seed=fit_seed)
        specs |= fitted.specs_of(card.identity)
        answers = {name: ask(manifest, name, spec) for name, spec in specs.items()}
    return Trade.of(manifest, answers, specs, fitted)


def _print(trade: Trade) -> None:
    for spec in trade.evaluation.specs:
        OUT.print(accuracy_table(trade, spec.name))
    OUT.print(still_table(trade.fitted))
    OUT.print(threshold_table(trade.fitted))
    OUT.print(margin_table(trade.fitted))
    OUT.print(cost_table(trade))
    for first in trade.curves:
        OUT.print(curve_table(trade, first))


@contextmanager
def _folder(kept: str | None) -> Iterator[Path]:
    if kept:
        Path(kept).mkdir(parents=True, exist_ok=True)
        yield Path(kept)
        return
    with TemporaryDirectory(prefix="reelabel-") as folder:
        yield Path(folder)
