"""`reelabel bench engine` and `reelabel bench questions`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.architectures import MEDIUM, write_architecture
from benchmarks.engine import Requests, Trial, ceiling
from benchmarks.questions import measure_questions
from tasks.demo.actors import SIDE_PX
from tasks.model.identity import TINY_MODEL
from tasks.model.process import EngineProcess
from tasks.model.questions import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.engine import Ceiling
    from benchmarks.questions import QuestionsRow

MODELS = ("tiny", "100m")
_MEDIUM_SIDE_PX = 84
_START_TIMEOUT_S = 900
_CONSOLE = Console(width=None if sys.stdout.isatty() else 160)  # a file has no width


def engine(models: Sequence[str], folder: Path, *, requests: int | None, rounds: int, as_json: bool) -> None:
    """Sweep an engine's settings for each model, and print a table, or JSON."""
    found: dict[str, Ceiling] = {}
    with Console(stderr=True).status("") as status:
        for name in models:

            def tell(trial: Trial, model: str = name) -> None:
                status.update(f"{model}: {trial.name}")

            config, side_px, usual = _model(name, folder, num_frames=16)
            asked = Requests(config=config, count=requests or usual, side_px=side_px, rounds=rounds)
            found[name] = ceiling(asked, on_trial=tell)
    if as_json:
        _print_json({name: _sweep_facts(swept) for name, swept in found.items()})
        return
    for name, swept in found.items():
        _CONSOLE.print(_sweep_table(name, swept))
        for failure in swept.failures.values():
            _CONSOLE.print(f"Failed, {failure}.", soft_wrap=True)
        _CONSOLE.print(f"Chosen: {swept.rows[0].settings}.\n", soft_wrap=True)


def questions(model: str, folder: Path, *, frames: int, rounds: int, as_json: bool) -> None:
    """Measure questions on one video, and print a table, or JSON."""
    config, side_px, _ = _model(model, folder, num_frames=frames)
    with TemporaryDirectory(prefix="reelabel-") as logs, Console(stderr=True).status("Loading the model, and asking"):
        log_path = Path(logs) / "engine.log"
        with EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as loaded:
            loaded.wait_ready()
            rows = list(measure_questions(loaded.ask, frames=frames, side_px=side_px, rounds=rounds))
    if as_json:
        _print_json({"model": model, "frames": frames, "rows": [asdict(row) | _against(row, rows[0]) for row in rows]})
        return
    table = _table(f"{model}, {frames} frames", ("questions", "ms", "times one", "prompt tokens", "of them cached"))
    for row in rows:
        times = _against(row, rows[0])["times_one"]
        cells = (f"{row.answer_ms:,.1f}", f"{times:.2f}x", f"{row.prompt_tokens:,}", f"{row.cached_tokens:,}")
        table.add_row(f"{row.questions}", *cells)
    _CONSOLE.print(table)


def _model(name: str, folder: Path, *, num_frames: int) -> tuple[EngineConfig, int, int]:
    """Find a model, the side of its frames in pixels, and how many requests make a round of some seconds."""
    if name == "tiny":
        return EngineConfig(model=str(TINY_MODEL), num_frames=num_frames, max_pixels=SIDE_PX**2), SIDE_PX, 128
    if name == "100m":
        model = str(write_architecture(MEDIUM, folder).resolve())
        pixels = MEDIUM.max_pixels
        config = EngineConfig(model=model, num_frames=num_frames, max_pixels=pixels, load_format="dummy")
        return config, _MEDIUM_SIDE_PX, 24
    raise typer.BadParameter(f"There is no {name!r}; write {' or '.join(MODELS)}.", param_hint="--models")


def _sweep_table(name: str, swept: Ceiling) -> Table:
    first = swept.rows[0]  # as chosen
    title = f"{name}, prompts of {first.prompt_tokens} tokens"
    table = _table(title, ("settings", "requests/s", "of chosen", "core ms/request", "of chosen", "start, s"))
    for row in swept.rows:
        table.add_row(
            f"{row.trial.name} (best)" if row is swept.best else row.trial.name,
            f"{row.requests_per_s:,.2f}",
            f"{row.requests_per_s / first.requests_per_s:.2f}x",
            f"{row.core_ms:,.1f}",
            f"{row.core_ms / first.core_ms:.2f}x",
            f"{row.start_s:,.1f}",
        )
    return table


def _table(title: str, headings: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", box=MARKDOWN)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    return table


def _sweep_facts(swept: Ceiling) -> dict[str, Any]:
    return {"best": swept.best.trial.name, "failures": swept.failures, "rows": [asdict(row) for row in swept.rows]}


def _against(row: QuestionsRow, one: QuestionsRow) -> dict[str, float]:
    return {"times_one": round(row.answer_ms / one.answer_ms, 3)}


def _print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    print(json.dumps(value, indent=2))  # noqa: T201 - for programs, not for a terminal's width
