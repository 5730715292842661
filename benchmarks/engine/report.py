"""Tables and JSON of the benchmarks of the engine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.engine.choice_mass import measure_choice_mass
from benchmarks.engine.model_folders import MEDIUM, write_architecture
from benchmarks.engine.questions import measure_questions
from benchmarks.engine.sweep import Candidate, Requests, sweep
from reelabel_engine.protocol import EngineConfig
from tasks.demo.actors import SIDE_PX
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import TINY_MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from benchmarks.engine.questions import QuestionsRow
    from benchmarks.engine.sweep import Sweep

MODELS = ("tiny", "100m")
_MEDIUM_SIDE_PX = 84
_START_TIMEOUT_S = 900


def engine(models: Sequence[str], folder: Path, *, requests: int | None, rounds: int, as_json: bool) -> None:
    """Sweep the engine's settings for each model; print a table or JSON."""
    sweeps: dict[str, Sweep] = {}
    with PROGRESS.status("") as status:
        for name in models:

            def show(candidate: Candidate, model: str = name) -> None:
                status.update(f"{model}: {candidate.name}")

            config, side_px, usual = _model(name, folder, num_frames=16)
            asked = Requests(config=config, count=requests or usual, side_px=side_px, rounds=rounds)
            sweeps[name] = sweep(asked, on_candidate=show)
    if as_json:
        print_json({name: _sweep_json(swept) for name, swept in sweeps.items()})
        return
    for name, swept in sweeps.items():
        OUT.print(_sweep_table(name, swept))
        for failure in swept.failures.values():
            OUT.print(f"Failed: {failure}.", soft_wrap=True)
        OUT.print(f"Chosen settings: {swept.rows[0].settings}.\n", soft_wrap=True)


def questions(model: str, folder: Path, *, frames: int, rounds: int, as_json: bool) -> None:
    """Measure several questions about one video; print a table or JSON."""
    config, side_px, _ = _model(model, folder, num_frames=frames)
    with TemporaryDirectory(prefix="reelabel-") as logs, PROGRESS.status("Loading the model and answering"):
        log_path = Path(logs) / "engine.log"
        with EngineProcess(config, log_path=log_path, start_timeout_s=_START_TIMEOUT_S) as loaded:
            loaded.wait_ready()
            rows = list(measure_questions(loaded.answer, frames=frames, side_px=side_px, rounds=rounds))
    if as_json:
        facts = [asdict(row) | {"times_one": round(_times_one(row, rows), 3)} for row in rows]
        print_json({"model": model, "frames": frames, "rows": facts})
        return
    headings = ("questions", "ms", "times one", "prompt tokens", "of them cached")
    table = figures_table(f"{model}, {frames} frames", headings, as_markdown=True)
    for row in rows:
        cells = (f"{row.answer_ms:,.1f}", f"{_times_one(row, rows):.2f}x", f"{row.prompt_tokens:,}")
        table.add_row(f"{row.questions}", *cells, f"{row.cached_tokens:,}")
    OUT.print(table)


def choice_mass(model: str, folder: Path, *, requests: int | None, rounds: int, as_json: bool) -> None:
    """Measure the cost of `choice_mass`; print a table or JSON."""
    config, side_px, usual = _model(model, folder, num_frames=16)
    with PROGRESS.status("Loading the model and answering"):
        asked = Requests(config=config, count=requests or usual, side_px=side_px, rounds=rounds)
        rows = measure_choice_mass(asked)
    if as_json:
        print_json({"model": model, "requests": asked.count, "rows": [asdict(row) for row in rows]})
        return
    headings = ("scoring", "ms a request", "of the first", "core ms a request", "of the first")
    table = figures_table(f"{model}, {asked.count} requests, {rounds} rounds", headings, as_markdown=True)
    for row in rows:
        of_wall, of_core = row.request_ms / rows[0].request_ms, row.core_ms / rows[0].core_ms
        table.add_row(row.name, f"{row.request_ms:.2f}", f"{of_wall:.2f}x", f"{row.core_ms:.2f}", f"{of_core:.2f}x")
    OUT.print(table)


def _model(name: str, folder: Path, *, num_frames: int) -> tuple[EngineConfig, int, int]:
    """Return the configuration, the side of its frames in pixels, and the requests of a round of some seconds."""
    if name == "tiny":
        return EngineConfig(model=str(TINY_MODEL), num_frames=num_frames, max_pixels=SIDE_PX**2), SIDE_PX, 128
    if name == "100m":
        model = str(write_architecture(MEDIUM, folder).resolve())
        pixels = MEDIUM.max_pixels
        config = EngineConfig(model=model, num_frames=num_frames, max_pixels=pixels, load_format="dummy")
        return config, _MEDIUM_SIDE_PX, 24
    raise typer.BadParameter(f"Unknown model {name!r}; choose {' or '.join(MODELS)}.", param_hint="--models")


def _sweep_table(name: str, swept: Sweep) -> Table:
    chosen = swept.rows[0]
    title = f"{name}, prompts of {chosen.prompt_tokens} tokens"
    headings = ("settings", "requests/s", "of chosen", "core ms/request", "of chosen", "start, s")
    table = figures_table(title, headings, as_markdown=True)
    for row in swept.rows:
        table.add_row(
            f"{row.candidate.name} (best)" if row is swept.best else row.candidate.name,
            f"{row.requests_per_s:,.2f}",
            f"{row.requests_per_s / chosen.requests_per_s:.2f}x",
            f"{row.core_ms:,.1f}",
            f"{row.core_ms / chosen.core_ms:.2f}x",
            f"{row.start_s:,.1f}",
        )
    return table


def _sweep_json(swept: Sweep) -> dict[str, Any]:
    return {"best": swept.best.candidate.name, "failures": swept.failures, "rows": [asdict(row) for row in swept.rows]}


def _times_one(row: QuestionsRow, rows: Sequence[QuestionsRow]) -> float:
    return row.answer_ms / rows[0].answer_ms
