"""`reelabel bench decode`, `reelabel bench fetch` and `reelabel bench store`."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks.clips import bench_clips, store_clips
from benchmarks.decode import DEMUX, INDEXED, LIMIT, LOSSLESS, NATIVE, OURS, PYAV, ROWS, THREADED, measure_decode
from benchmarks.fetch import measure_fetch
from benchmarks.loaders import torchcodec_loads
from benchmarks.plot import Panel, draw
from benchmarks.store import measure_store
from flows.commands.opened import services
from infra.embedded import ServiceName
from infra.objects import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.decode import DecodeRow
    from benchmarks.fetch import FetchRow
    from benchmarks.store import StoreRow

_CONSOLE = Console()


def decode(lengths_s: tuple[int, ...], folder: Path, *, rounds: int, as_json: bool, plot: str | None) -> None:
    """Measure decoding and print a table, or JSON; draw it if asked to."""
    with Console(stderr=True).status("Measuring; clips are made the first time"):
        rows = list(measure_decode(bench_clips(lengths_s), folder, rounds=rounds))
    if plot:
        _plot(plot, {f"Decode, {size}, ms": rows for size, rows in _decode_lines(rows).items()})
    if as_json:
        _print_json([asdict(row) for row in rows])
        return
    for family, group in groupby(rows, lambda row: row.clip.family):
        _CONSOLE.print(_decode_table(f"{family}, milliseconds (medians)", list(group)))
    if not torchcodec_loads():
        _CONSOLE.print("torchcodec does not load here: no row.", soft_wrap=True)


def fetch(lengths_s: tuple[int, ...], folder: Path, *, rounds: int, as_json: bool, plot: str | None) -> None:
    """Measure fetching from the S3 server and print a table, or JSON; draw it if asked to."""
    with services(ServiceName.S3) as settings:
        objects, root_uri = ObjectStore(settings.store, settings.web), f"{settings.store.uri}/bench"
        clips = bench_clips(lengths_s)
        rows = list(measure_fetch(clips, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    if plot:
        _plot(plot, {f"Bytes read, {size}": lines for size, lines in _fetch_lines(rows).items()})
    if as_json:
        _print_json([asdict(row) | {"overhead": row.overhead, "share": row.share} for row in rows])
    else:
        for family, group in groupby(rows, lambda row: row.clip.family):
            _CONSOLE.print(_fetch_table(family, list(group)))


def store(length_s: int, folder: Path, *, rounds: int, as_json: bool) -> None:
    """Measure storing frames on the S3 server and print a table, or JSON."""
    with services(ServiceName.S3) as settings:
        objects, root_uri = ObjectStore(settings.store, settings.web), f"{settings.store.uri}/bench"
        clips = store_clips(length_s)
        rows = list(measure_store(clips, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    if as_json:
        _print_json([asdict(row) for row in rows])
    else:
        for name, group in groupby(rows, lambda row: row.clip.name):
            _CONSOLE.print(_store_table(f"{name}, milliseconds (medians)", group))


def _decode_table(title: str, rows: Sequence[DecodeRow]) -> Table:
    table = _by_length(title, rows)
    for way in ROWS:
        if any(way in row.median_ms for row in rows):
            table.add_row(way, *(f"{row.median_ms[way]:,.1f}" if way in row.median_ms else "" for row in rows))
    table.add_section()
    for name, way, to in (
        ("uniform, PyAV / ours", PYAV, LOSSLESS),
        ("demux and seek / ours", DEMUX, NATIVE),
        ("demux and seek / ours, two threads", DEMUX, THREADED),
        ("ours / limit", OURS, LIMIT),
        ("index cached / limit", INDEXED, LIMIT),
    ):
        ratios = (f"{row.ratio(way, to):.2f}x" if {way, to} <= row.median_ms.keys() else "" for row in rows)
        table.add_row(name, *ratios)
    return table


def _fetch_table(title: str, rows: Sequence[FetchRow]) -> Table:
    table = _by_length(title, rows)
    for name, values in (
        ("file, bytes", [f"{row.file_bytes:,}" for row in rows]),
        ("header, index and picks, bytes", [f"{row.needed_bytes:,}" for row in rows]),
        ("read in parts, bytes", [f"{row.parts_bytes:,}" for row in rows]),
        ("the same, index cached", [f"{row.cached_bytes:,}" for row in rows]),
        ("read / needed", [f"{row.overhead:.2f}x" for row in rows]),
        ("read / file", [f"{row.share:.2%}" for row in rows]),
        ("download and decode, ms", [f"{row.whole_ms:,.1f}" for row in rows]),
        ("parts and decode, ms", [f"{row.parts_ms:,.1f}" for row in rows]),
        ("the same, index cached, ms", [f"{row.cached_ms:,.1f}" for row in rows]),
    ):
        table.add_row(name, *values)
    return table


def _by_length(title: str, rows: Sequence[DecodeRow] | Sequence[FetchRow]) -> Table:
    table = Table("", title=title, box=SIMPLE, pad_edge=False)
    for row in rows:
        table.add_column(f"{row.clip.length_s} s", justify="right")
    return table


def _store_table(title: str, rows: Iterable[StoreRow]) -> Table:
    table = Table(title=title, box=SIMPLE, collapse_padding=True, pad_edge=False)
    for heading in ("", "bytes", "of raw", "encode", "put", "get", "decode", "pixels"):
        table.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for row in rows:
        table.add_row(
            row.way,
            f"{row.stored_bytes:,}",
            f"{row.stored_bytes / row.raw_bytes:.1%}",
            *(f"{ms:,.1f}" for ms in (row.encode_ms, row.put_ms, row.get_ms, row.decode_ms)),
            "exact" if row.psnr_db is None else f"{row.psnr_db:.1f} dB",
        )
    return table


def _decode_lines(rows: Sequence[DecodeRow]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    lines = _empty_lines()
    for row in rows:
        for way, ms in row.median_ms.items():
            lines[row.clip.family][way].append((row.clip.length_s, max(ms, 0.1)))
    return lines


def _fetch_lines(rows: Sequence[FetchRow]) -> dict[str, dict[str, list[tuple[float, float]]]]:
    lines = _empty_lines()
    for row in rows:
        here = lines[row.clip.family]
        here["whole file"].append((row.clip.length_s, row.file_bytes))
        here["read in parts"].append((row.clip.length_s, row.parts_bytes))
        here["index cached"].append((row.clip.length_s, row.cached_bytes))
        here["needed"].append((row.clip.length_s, row.needed_bytes))
    return lines


def _empty_lines() -> dict[str, dict[str, list[tuple[float, float]]]]:
    return defaultdict(lambda: defaultdict(list))


def _plot(file: str, panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]) -> None:
    Path(file).write_text(draw([Panel(title, lines) for title, lines in panels.items()]))


def _print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    print(json.dumps(value, indent=2))  # noqa: T201 - for programs, not for a terminal's width
