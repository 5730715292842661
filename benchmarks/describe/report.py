"""Tables and JSON of the benchmarks of descriptions."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.cores import Cores, bind
from benchmarks.services import own_services
from flows.cli.context import prefect_ready
from tasks.database.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rich.table import Table

    from benchmarks.describe.encoder import EncoderRow
    from benchmarks.describe.retag import RetagRow

_WARM_SHARE, _COLD_SHARE = 0.95, 0.9
_MIB = 1024**2


def retag(counts: Sequence[int], folder: Path, *, seconds: float, shards_only: bool, as_json: bool) -> None:
    """Measure each number of videos; print a table for each, or JSON."""
    with own_services() as settings, prefect_ready(settings), PROGRESS.status("") as status:
        from benchmarks.describe.retag import measure_retag  # noqa: PLC0415 - see prefect_ready

        prepare_database(settings.database)
        measured: list[RetagRow] = []
        for count in counts:

            def show(step: str, count: int = count) -> None:
                status.update(f"{count:,} videos: {step}")

            rows = measure_retag(
                count,
                seconds=seconds,
                shards_only=shards_only,
                settings=settings,
                folder=folder,
                on_progress=show,
            )
            measured += rows
            if not as_json:
                OUT.print(_retag_table(rows, seconds=seconds))
    if as_json:
        print_json([asdict(row) for row in measured])


def encoder(count: int, folder: Path, *, rounds: int, as_json: bool) -> int:
    """Compare the flow with the encoder alone; print a table, or JSON; return 1 where a target is missed, else 0."""
    cores = Cores.split()
    bind(os.getpid(), cores.host)
    with own_services() as settings, prefect_ready(settings), PROGRESS.status("") as status:
        from benchmarks.describe.encoder import measure_encoder  # noqa: PLC0415 - see prefect_ready

        prepare_database(settings.database)
        rows = measure_encoder(
            count, rounds=rounds, settings=settings, folder=folder, cores=cores, on_progress=status.update
        )
    by_name = {row.name: row.frames_per_s for row in rows}
    ceiling = by_name["encoder alone"]
    slower = min(ceiling, by_name["extraction alone"])
    ratios = {
        "describe, cold": (by_name["describe, cold"] / slower, _COLD_SHARE),
        "describe, frames cached": (by_name["describe, frames cached"] / ceiling, _WARM_SHARE),
    }
    if as_json:
        print_json({"rows": [asdict(row) for row in rows], "ratios": {name: each[0] for name, each in ratios.items()}})
    else:
        OUT.print(_encoder_table(rows, ratios, count=count))
        OUT.print(str(cores).replace("engine is", "encoder is"), soft_wrap=True)
    return 0 if all(ratio >= target for ratio, target in ratios.values()) else 1


def film(hours: Sequence[float], folder: Path, *, as_ts: bool, as_json: bool) -> None:
    """Describe a film of each length; print the peaks of memory as a table, or JSON."""
    with own_services() as settings, prefect_ready(settings), PROGRESS.status("") as status:
        from benchmarks.describe.film import measure_film  # noqa: PLC0415 - see prefect_ready

        prepare_database(settings.database)
        rows = [
            measure_film(length, settings=settings, folder=folder, as_ts=as_ts, on_progress=status.update)
            for length in hours
        ]
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    kind = "MPEG-TS" if as_ts else "MP4"
    table = figures_table(f"Films of 240 x 136 px, as {kind}, described", ("", *(f"{row.hours:g} h" for row in rows)))
    table.add_row("seconds", *(f"{row.seconds:,.0f}" for row in rows))
    table.add_row("chunks", *(f"{row.chunks:,}" for row in rows))
    table.add_row("frames embedded", *(f"{row.frames_embedded:,}" for row in rows))
    table.add_row("frames decoded", *(f"{row.frames_decoded:,}" for row in rows))
    table.add_row("flow before the run, MiB", *(f"{row.before_bytes / _MIB:,.0f}" for row in rows))
    for name in ("flow", "decoding", "encoder"):
        table.add_row(f"{name}, peak MiB", *(f"{row.peak_bytes.get(name, 0) / _MIB:,.0f}" for row in rows))
    OUT.print(table)


def _encoder_table(rows: Sequence[EncoderRow], ratios: Mapping[str, tuple[float, float]], *, count: int) -> Table:
    title = f"{count} clips, {rows[0].frames:,} frames; medians of {len(rows[0].seconds)} rounds"
    alone = ("of the encoder alone", "of the slower side alone")
    table = figures_table(title, ("", "frames/s", *alone, "encoder at work", "to reach"))
    ceiling = next(row.frames_per_s for row in rows if row.name == "encoder alone")
    slower = min(row.frames_per_s for row in rows if row.name.endswith("alone"))
    for row in rows:
        _, target = ratios.get(row.name, (0.0, None))
        table.add_row(
            row.name,
            f"{row.frames_per_s:.1f}",
            f"{row.frames_per_s / ceiling:.2f}",
            f"{row.frames_per_s / slower:.2f}",
            "" if row.answering is None else f"{row.answering:.0%}",
            "" if target is None else f"{target:.2f} of the {'slower side' if 'cold' in row.name else 'encoder'}",
        )
    return table


def _retag_table(rows: Sequence[RetagRow], *, seconds: float) -> Table:
    title = f"{rows[0].videos:,} embedded videos of {seconds:g} s, described by banks of 20 tags"
    table = figures_table(title, ("", *(f"by {row.name}" for row in rows)))
    table.add_row("seconds", *(f"{row.seconds:,.1f}" for row in rows))
    table.add_row("without the encoder's start", *(f"{row.describing_s:,.1f}" for row in rows))
    table.add_row("videos/s", *(f"{row.videos_per_s:,.0f}" for row in rows))
    table.add_row("videos/s without the encoder's start", *(f"{row.videos / row.describing_s:,.0f}" for row in rows))
    table.add_row("CPU of the flow, s", *(f"{row.cpu_s:,.1f}" for row in rows))
    table.add_row("frames decoded, embedded", *(f"{row.decoded}, {row.embedded}" for row in rows))
    table.add_row("rows of chunks", *(f"{row.chunk_rows:,}" for row in rows), end_section=True)
    for part in dict.fromkeys(part for row in rows for part in row.wall_s):
        shares = (f"{row.wall_s.get(part, 0.0) / row.seconds:.0%}" for row in rows)
        table.add_row(f"wall clock: {part}", *shares)
    outside = (f"{1 - sum(row.wall_s.values()) / row.seconds:.0%}" for row in rows)
    table.add_row("before and after: start and end", *outside)
    table.add_section()
    for part in dict.fromkeys(part for row in rows for part, spent_s in row.stage_s.items() if spent_s):
        per_video = (f"{row.stage_s.get(part, 0.0) / row.videos * 1e3:.2f} ms" for row in rows)
        table.add_row(f"a video, all threads: {part}", *per_video)
    return table
