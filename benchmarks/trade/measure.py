"""The whole benchmark: learn from the clips of one seed, ask those of another by every way."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from benchmarks.trade.asking import Asking, jobs_of
from benchmarks.trade.fitting import learn
from benchmarks.trade.report import Trade
from benchmarks.trade.ways import FAITHFUL, specs_of
from tasks.demo.actors import SIDE_PX
from tasks.model.identity import read_model_card
from tasks.model.process import EngineProcess
from tasks.model.questions import EngineConfig
from tasks.video.pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

    from benchmarks.trade.asking import Answers
    from tasks.domain import RunSpec

_START_TIMEOUT_S = 600.0
_DECODE_TIMEOUT_S = 60.0
_DECODE_MIB = 4096
_WARM_UP_JOBS = 32


def measure(
    manifest: pl.DataFrame,
    known: pl.DataFrame,
    *,
    known_seed: int,
    model: str | None,
    log_path: Path,
    tell: Callable[[str], None],
) -> Trade:
    """Ask everything of one engine.

    Args:
        manifest: Of the clips that are measured.
        known: Of those that are learnt from.
        known_seed: Their seed.
        model: Folder or hub name; None is the demo's.
        log_path: Where the engine's log goes.
        tell: Is told what is being done.
    """
    card = read_model_card(model)
    config = EngineConfig(model=card.location, dtype="float32", max_pixels=SIDE_PX**2)
    tell("Loading the model")
    with (
        DecodePool(processes=os.cpu_count() or 1, timeout_s=_DECODE_TIMEOUT_S, memory_mib=_DECODE_MIB) as pool,
        EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as engine,
    ):
        asking = Asking(engine=engine, pool=pool)
        specs = specs_of(card.identity)
        asking.ask(jobs_of(known)[:_WARM_UP_JOBS], specs[FAITHFUL])  # the first answers of a process take longer

        def ask(clips: pl.DataFrame, name: str, spec: RunSpec) -> Answers:
            tell(f"Asking {clips.height:,} questions by {name}")
            return asking.ask(jobs_of(clips), spec)

        fitted = learn(known, card.identity, lambda name, spec: ask(known, name, spec), seed=known_seed)
        specs |= fitted.specs_of(card.identity)
        answers = {name: ask(manifest, name, spec) for name, spec in specs.items()}
    return Trade.of(manifest, answers, specs, fitted)
