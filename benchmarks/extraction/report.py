"""Tables, JSON and diagrams of the benchmarks of extraction."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.extraction.archive import CLIP, measure_archive
from benchmarks.extraction.cache import measure_cache
from benchmarks.extraction.decode import (
    DEMUX,
    INDEXED,
    LIMIT,
    METHODS,
    NATIVE,
    OURS,
    PYAV,
    THREADED,
    UNIFORM,
    measure_decode,
)
from benchmarks.extraction.fetch import measure_fetch
from benchmarks.extraction.hdr import FRAMES, measure_hdr
from benchmarks.extraction.ranges import measure_ranges
from benchmarks.extraction.similar import measure_similar, overall_factor
from benchmarks.extraction.start import measure_start
from benchmarks.extraction.store import measure_seal, measure_store
from benchmarks.extraction.survey import measure_survey
from benchmarks.media.clips import bench_clips, store_clips
from benchmarks.plot import Panel, draw
from flows.cli.context import running_services
from infra.embedded import ServiceName
from reelabel.sources.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.table import Table

    from benchmarks.extraction.cache import CacheRow
    from benchmarks.extraction.decode import DecodeRow
    from benchmarks.extraction.fetch import FetchRow
    from benchmarks.extraction.ranges import Case, RangesRow
    from benchmarks.extraction.similar import SimilarRow
    from benchmarks.extraction.store import StoreRow

    Lines = dict[str, dict[str, list[tuple[float, float]]]]  # by clip family and name: (length in seconds, value)

_LEAST_MS = 0.1  # the logarithmic axis has no zero
_KIB = 1024
_START_S = 30  # length of the clip of which a fresh process takes frames


def decode(lengths_s: tuple[int, ...], folder: Path, *, rounds: int, as_json: bool, plot: str | None) -> None:
    """Measure decoding; print a table or JSON, and draw a diagram if asked to."""
    with PROGRESS.status("Measuring; the first run makes the clips"):
        rows = list(measure_decode(bench_clips(lengths_s), folder, rounds=rounds))
    if plot:
        _plot(plot, "Decode, {}, ms", _decode_lines(rows))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    for family, group in groupby(rows, lambda row: row.clip.family):
        OUT.print(_decode_table(f"{family}, milliseconds (medians)", list(group)))


def fetch(lengths_s: tuple[int, ...], folder: Path, *, rounds: int, as_json: bool, plot: str | None) -> None:
    """Measure fetching from the S3 server; print a table or JSON, and draw a diagram if asked to."""
    with running_services(ServiceName.S3) as settings:
        objects, root_uri = ObjectStore(settings.store, settings.web), f"{settings.store.uri}/bench"
        clips = bench_clips(lengths_s)
        rows = list(measure_fetch(clips, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    if plot:
        _plot(plot, "Bytes read, {}", _fetch_lines(rows))
    if as_json:
        print_json([asdict(row) | {"overhead": row.overhead, "share": row.share} for row in rows])
        return
    for family, group in groupby(rows, lambda row: row.clip.family):
        OUT.print(_fetch_table(family, list(group)))


def ranges(wanted: Sequence[Case], folder: Path, *, rounds: int, as_json: bool) -> int:
    """Measure reading frames between keyframes; print a table or JSON; return 1 where a target is missed."""
    with running_services(ServiceName.S3) as settings:
        objects, root_uri = ObjectStore(settings.store, settings.web), f"{settings.store.uri}/bench"
        with PROGRESS.status("Measuring; the first run makes the clips"):
            rows = list(measure_ranges(wanted, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    if as_json:
        print_json([asdict(row) | {"overhead": row.overhead, "saving": row.saving, "met": row.is_met} for row in rows])
    else:
        OUT.print(_ranges_table(rows))
    return 0 if all(row.is_met for row in rows) else 1


def archive(folder: Path, *, megabytes: int, rounds: int, as_json: bool) -> None:
    """Measure reading one clip in a tar on the S3 server; print a table or JSON."""
    with running_services(ServiceName.S3) as settings, PROGRESS.status("Measuring; packing takes a while"):
        root_uri = f"{settings.store.uri}/bench-archive"
        rows = list(
            measure_archive(CLIP, folder, store=settings.store, root_uri=root_uri, megabytes=megabytes, rounds=rounds)
        )
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    title = f"One of {rows[0].members:,} clips in a tar of {rows[0].archive_bytes:,} bytes on S3 (medians)"
    table = figures_table(title, ("clip", "requests", "bytes read", "ms"))
    for row in rows:
        table.add_row(row.way, f"{row.requests:,}", f"{row.bytes_read:,}", f"{row.ms:,.1f}")
    OUT.print(table)


def survey(folder: Path, *, videos: int, rows: int, sample: int, as_json: bool) -> None:
    """Measure surveys of videos on the S3 server; print a table or JSON."""
    with running_services(ServiceName.S3) as settings:
        objects = ObjectStore(settings.store, settings.web)
        with PROGRESS.status("Measuring; the first run makes the clips"):
            measured = list(
                measure_survey(folder, settings=settings, objects=objects, videos=videos, rows=rows, sample=sample)
            )
    if as_json:
        print_json([asdict(row) for row in measured])
        return
    table = figures_table("", ("survey", "rows", "clips seen", "indexes, s", "total, s", "MB read"))
    for row in measured:
        cells = f"{row.rows:,}", f"{row.seen:,}", f"{row.indexes_s:.1f}", f"{row.total_s:.1f}"
        table.add_row(row.name, *cells, f"{row.bytes_read / 1e6:,.1f}")
    OUT.print(table)


def store(length_s: int, folder: Path, *, rounds: int, as_json: bool) -> None:
    """Measure storing frames on the S3 server; print a table or JSON."""
    with running_services(ServiceName.S3) as settings:
        objects, root_uri = ObjectStore(settings.store, settings.web), f"{settings.store.uri}/bench"
        clips = store_clips(length_s)
        rows = list(measure_store(clips, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    for name, group in groupby(rows, lambda row: row.clip.name):
        OUT.print(_store_table(f"{name}, milliseconds (medians)", group))
    cost_ms = ", its ".join(f"{name} {ms:.2f} ms" for name, ms in measure_seal(rounds).items())
    OUT.print(f"Of each MiB of a frame file, verifying its {cost_ms}.")


def similar(folder: Path, *, threshold: float, as_json: bool) -> None:
    """Measure what `drop_similar` keeps of each scene; print a table or JSON."""
    with PROGRESS.status("Measuring; the first run renders the scenes"):
        rows = list(measure_similar(folder, threshold=threshold))
    static, moving = (overall_factor(rows, is_static=is_static) for is_static in (True, False))
    if as_json:
        report = {
            "threshold": threshold,
            "static_factor": round(static, 3),
            "moving_factor": round(moving, 3),
            "scenes": [asdict(row) | {"factor": round(row.factor, 3)} for row in rows],
        }
        print_json(report)
        return
    OUT.print(_similar_table(rows, threshold))
    OUT.print(f"Static scenes together: {static:.1f} times fewer frames; moving scenes: {moving:.1f}.")


def hdr(folder: Path, *, rounds: int, as_json: bool) -> None:
    """Measure what tone mapping costs; print a table or JSON."""
    with PROGRESS.status("Measuring; the first run makes the clips"):
        rows = list(measure_hdr(folder, rounds=rounds))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    table = figures_table(f"{FRAMES} keyframes of HDR in 1080p, ms", ("", "as decoded", "tone-mapped", "more a frame"))
    for row in rows:
        figures = (row.as_decoded_ms, row.tone_mapped_ms, row.per_frame_ms)
        table.add_row(row.transfer, *(f"{ms:.1f}" for ms in figures))
    OUT.print(table)


def start(folder: Path, *, rounds: int, as_json: bool) -> None:
    """Measure fresh processes; print a table or JSON."""
    with PROGRESS.status("Measuring; the first run makes the clip"):
        rows = measure_start(bench_clips((_START_S,))[0].make(folder), rounds=rounds)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    table = figures_table("Fresh processes, without the start of Python", ("", "ms", "CPU ms"))
    for row in rows:
        table.add_row(row.work, f"{row.wall_ms:,.0f}", f"{row.cpu_ms:,.0f}")
    OUT.print(table)


def cache(counts: Sequence[int], *, on_store: bool, as_json: bool) -> None:
    """Measure listing a cache and planning its eviction; print a table or JSON."""
    wanted = [ServiceName.S3] if on_store else []
    with running_services(*wanted) as settings, TemporaryDirectory(prefix="reelabel-") as folder:
        root_uri = f"{settings.store.uri}/bench/cache" if on_store else Path(folder).as_uri()
        with PROGRESS.status("Filling a cache, and measuring"):
            rows = list(measure_cache(ObjectStore(settings.store, settings.web), root_uri, counts))
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        OUT.print(_cache_table(rows, "on the store" if on_store else "in a folder"))


def _decode_table(title: str, rows: Sequence[DecodeRow]) -> Table:
    table = figures_table(title, ("", *(f"{row.clip.length_s} s" for row in rows)))
    for method in METHODS:
        if any(method in row.median_ms for row in rows):
            table.add_row(method, *(f"{row.median_ms[method]:,.1f}" if method in row.median_ms else "" for row in rows))
    table.add_section()
    for name, method, to in (
        ("uniform, PyAV / ours", PYAV, UNIFORM),
        ("demux and seek / ours", DEMUX, NATIVE),
        ("demux and seek / ours, two threads", DEMUX, THREADED),
        ("ours / limit", OURS, LIMIT),
        ("index cached / limit", INDEXED, LIMIT),
    ):
        ratios = (f"{row.ratio(method, to):.2f}x" if {method, to} <= row.median_ms.keys() else "" for row in rows)
        table.add_row(name, *ratios)
    table.add_row("locked process / unlocked", *(f"{row.locked:.2f}x" for row in rows))
    table.add_row("more, in a process of its own", *(f"{row.replaced_ms:,.1f}" for row in rows))
    return table


def _fetch_table(title: str, rows: Sequence[FetchRow]) -> Table:
    table = figures_table(title, ("", *(f"{row.clip.length_s} s" for row in rows)))
    for name, values in (
        ("file, bytes", [f"{row.file_bytes:,}" for row in rows]),
        ("header, index and picks, bytes", [f"{row.needed_bytes:,}" for row in rows]),
        ("read in parts, bytes", [f"{row.parts_bytes:,}" for row in rows]),
        ("read with the index cached, bytes", [f"{row.cached_bytes:,}" for row in rows]),
        ("read / needed", [f"{row.overhead:.2f}x" for row in rows]),
        ("read / file", [f"{row.share:.2%}" for row in rows]),
        ("download and decode, ms", [f"{row.whole_ms:,.1f}" for row in rows]),
        ("parts and decode, ms", [f"{row.parts_ms:,.1f}" for row in rows]),
        ("the same with the index cached, ms", [f"{row.cached_ms:,.1f}" for row in rows]),
        ("parts, locked process / unlocked", [f"{row.locked:.2f}x" for row in rows]),
    ):
        table.add_row(name, *values)
    return table


def _ranges_table(rows: Sequence[RangesRow]) -> Table:
    title = "Sixteen uniform frames from S3, by a download and by ranges (medians)"
    headings = (
        *("", "file, bytes", "read", "read / needed", "fewer"),
        *("one decoder, ms", "download, ms", "ranges, ms", "FFmpeg alone, ms"),
        *("one decoder / ranges", "download / ranges", "one decoder / FFmpeg alone", "targets"),
    )
    table = figures_table(title, headings)
    for row in rows:
        table.add_row(
            row.case.name,
            f"{row.file_bytes:,}",
            f"{row.read_bytes:,}",
            f"{row.overhead:.2f}x",
            f"{row.saving:.1f}x",
            f"{row.before_ms:,.1f}",
            f"{row.download_ms:,.1f}",
            f"{row.ranges_ms:,.1f}",
            f"{row.bare_ms:,.1f}",
            f"{row.gain:.2f}x",
            f"{row.speedup:.2f}x",
            f"{row.bound:.2f}x",
            "met" if row.is_met else "missed" if row.is_same else "other frames",
        )
    return table


def _store_table(title: str, rows: Iterable[StoreRow]) -> Table:
    table = figures_table(title, ("", "bytes", "of raw", "encode", "put", "get", "decode", "pixels"))
    for row in rows:
        table.add_row(
            row.format,
            f"{row.stored_bytes:,}",
            f"{row.stored_bytes / row.raw_bytes:.1%}",
            *(f"{ms:,.1f}" for ms in (row.encode_ms, row.put_ms, row.get_ms, row.decode_ms)),
            "exact" if row.psnr_db is None else f"{row.psnr_db:.1f} dB",
        )
    return table


def _similar_table(rows: Sequence[SimilarRow], threshold: float) -> Table:
    headings = ("Scene", "", "frames before", "after", "times fewer", "comparison, ms")
    table = figures_table(f"One minute at 1 frame per second, drop_similar {threshold:g}", headings, names=2)
    for row in rows:
        kind = "static" if row.is_static else "moving"
        table.add_row(row.scene, kind, f"{row.before}", f"{row.after}", f"{row.factor:.1f}", f"{row.drop_ms:.1f}")
    return table


def _cache_table(rows: Sequence[CacheRow], where: str) -> Table:
    table = figures_table(f"A cache {where}", ("", *(f"{row.files:,} files" for row in rows)))
    for title, values in (
        ("cache ls, s", [f"{row.list_s:.2f}" for row in rows]),
        ("peak of Python's memory, KiB", [f"{row.list_peak_bytes / _KIB:,.0f}" for row in rows]),
        ("cache gc --dry-run, s", [f"{row.plan_s:.2f}" for row in rows]),
        ("peak of Python's memory, KiB", [f"{row.plan_peak_bytes / _KIB:,.0f}" for row in rows]),
    ):
        table.add_row(title, *values)
    return table


def _decode_lines(rows: Sequence[DecodeRow]) -> Lines:
    lines = _empty_lines()
    for row in rows:
        for method, ms in row.median_ms.items():
            lines[row.clip.family][method].append((row.clip.length_s, max(ms, _LEAST_MS)))
    return lines


def _fetch_lines(rows: Sequence[FetchRow]) -> Lines:
    lines = _empty_lines()
    for row in rows:
        family = lines[row.clip.family]
        family["whole file"].append((row.clip.length_s, row.file_bytes))
        family["read in parts"].append((row.clip.length_s, row.parts_bytes))
        family["index cached"].append((row.clip.length_s, row.cached_bytes))
        family["needed"].append((row.clip.length_s, row.needed_bytes))
    return lines


def _empty_lines() -> Lines:
    return defaultdict(lambda: defaultdict(list))


def _plot(file: str, title: str, lines: Lines) -> None:
    Path(file).write_text(draw([Panel(title.format(family), named) for family, named in lines.items()]))
