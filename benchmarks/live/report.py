"""Tables and JSON of the benchmark of live sessions."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.live.agreement import measure_agreement
from benchmarks.live.chat_server import serve_chat
from benchmarks.live.endurance import measure_endurance
from benchmarks.live.latency import LatencyRow, measure_chat, measure_latency, no_chat
from benchmarks.live.parts import measure_parts, open_timed
from benchmarks.live.stream import find_setup, open_collecting
from reelabel_engine.errors import ModelError
from tasks.live.window import WindowRule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rich.table import Table

    from benchmarks.live.agreement import Agreement
    from benchmarks.live.endurance import Endurance
    from benchmarks.live.parts import PartsRow

_WINDOW = WindowRule(sink=8, size=64)


def live(
    model: str,
    folder: Path,
    *,
    frames: Sequence[int],
    rounds: int,
    minutes: float,
    labels: int,
    with_parts: bool,
    as_json: bool,
) -> None:
    """Measure live sessions; print tables or JSON."""
    setup = find_setup(model, folder)
    folder.mkdir(parents=True, exist_ok=True)
    agreement: dict[str, Agreement] = {}
    parts: list[PartsRow] = []
    with PROGRESS.status("Loading the model") as status:
        with open_collecting(setup, folder) as (opened, collections):
            show = status.update
            timed = list(measure_latency(opened, setup, frames, rounds=rounds, on_length=show))
            endurance = measure_endurance(
                opened, setup, minutes=minutes, rule=_WINDOW, collections=collections, on_minute=show
            )
            if model == "tiny" and labels:
                agreement = measure_agreement(opened, labels=labels, on_clip=show)
        if with_parts:
            status.update("Loading the model with clocks")
            with open_timed(setup, folder) as (timed_live, path):
                parts = list(measure_parts(timed_live, path, setup, frames, rounds=rounds, on_length=show))
        status.update("Starting vLLM's server")
        longest = max(int(fields["prompt_tokens"]) for fields in timed)
        try:
            with serve_chat(setup, folder, prompt_tokens=longest) as server:
                chat = list(measure_chat(server, setup, frames, rounds=rounds, on_length=show))
        except ModelError as error:
            chat = [no_chat(error)] * len(timed)
    rows = [
        LatencyRow(**fields | of_chat)  # type: ignore[arg-type] # counts and a sentence among the milliseconds
        for fields, of_chat in zip(timed, chat, strict=True)
    ]
    if as_json:
        print_json(
            {
                "model": model,
                "rows": [asdict(row) for row in rows],
                "endurance": asdict(endurance),
                "parts": [asdict(row) for row in parts],
                "agreement": {task: asdict(each) for task, each in agreement.items()},
            }
        )
        return
    OUT.print(_latency_table(model, rows))
    if parts:
        OUT.print(_parts_table(model, parts))
    OUT.print(_endurance_table(model, endurance))
    OUT.print(_longest_table(endurance))
    if agreement:
        OUT.print(_agreement_table(model, agreement))


def _latency_table(model: str, rows: Sequence[LatencyRow]) -> Table:
    title = f"{model}: milliseconds from the last pair of frames to the first token, by how they are read"
    headings = ("frames", "on arrival", "of the first", "at the question", "vLLM's chat", "question alone", "arrival")
    table = figures_table(title, (*headings, "prompt tokens", "cached", "computed"), as_markdown=True)
    for row in rows:
        table.add_row(
            f"{row.frames}",
            f"{row.on_arrival_ms:,.1f}",
            f"{row.on_arrival_ms / rows[0].on_arrival_ms:.2f}x",
            f"{row.at_question_ms:,.1f}",
            "none" if row.chat_ms is None else f"{row.chat_ms:,.1f}",
            f"{row.question_ms:,.1f}",
            f"{row.arrival_ms:,.1f}",
            f"{row.prompt_tokens:,}",
            f"{row.cached_tokens:,}",
            f"{row.computed_tokens:,}",
        )
    table.caption = Text("\n".join(f"{row.frames} frames: {row.chat_error}" for row in rows if row.chat_error))
    table.caption_justify = "left"
    return table


def _parts_table(model: str, rows: Sequence[PartsRow]) -> Table:
    title = f"{model}: milliseconds from the last pair of frames to the first token, by part"
    table = figures_table(title, ("frames", "computed", *rows[0].parts_ms, "all"), as_markdown=True)
    for row in rows:
        cells = (f"{each:,.1f}" for each in (*row.parts_ms.values(), row.total_ms))
        table.add_row(f"{row.frames}", f"{row.computed_tokens}", *cells)
    return table


def _endurance_table(model: str, found: Endurance) -> Table:
    title = (
        f"{model}: {found.stream_s / 60:g} minutes of stream at 2 frames/s, replayed in {found.replay_s:,.0f} s; "
        f"{found.evictions} evictions, at most {found.most_frames} frames in a prompt"
    )
    table = figures_table(title, ("", "P50, ms", "P99, ms", "P99 / P50", "longest, ms"), as_markdown=True)
    for name, (p50, p99, most) in (("arrival", found.arrival_ms), ("question", found.question_ms)):
        table.add_row(name, f"{p50:,.1f}", f"{p99:,.1f}", f"{p99 / p50 if p50 else 0:.2f}x", f"{most:,.1f}")
    table.caption = f"Memory after each quarter, MiB: {', '.join(f'{each:,.0f}' for each in found.memory_mib)}"
    table.caption_justify = "left"
    return table


def _longest_table(found: Endurance) -> Table:
    headings = ("minute", "ms", "steps", "on a core", "no core", "stolen", "garbage", "computed", "evicts", "cause")
    table = figures_table("The longest arrivals, and where their milliseconds went", headings, as_markdown=True)
    for each in found.longest:
        times = (each.total_ms, each.step_ms, each.core_ms, each.no_core_ms, each.stolen_ms, each.garbage_ms)
        cells = (*(f"{ms:,.1f}" for ms in times), f"{each.computed_tokens}", "yes" if each.is_evicting else "no")
        table.add_row(f"{each.at_s / 60:.1f}", *cells, each.cause)
    causes = ", ".join(f"{count} {cause}" for cause, count in found.slow.items())
    table.caption = f"Arrivals of more than three times the median, by their cause: {causes or 'none'}"
    table.caption_justify = "left"
    return table


def _agreement_table(model: str, found: dict[str, Agreement]) -> Table:
    title = f"{model}: labels beside those of classify about the same frames as one video"
    headings = ("question", "labels", "the same", "share", "right", "largest difference of a probability")
    table = figures_table(title, headings, as_markdown=True)
    for task, each in found.items():
        cells = (f"{each.labels}", f"{each.same}", f"{each.same / each.labels:.4f}", f"{each.right / each.labels:.3f}")
        table.add_row(task, *cells, f"{each.difference:.1e}")
    return table
