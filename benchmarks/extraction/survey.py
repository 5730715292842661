"""Seconds of a survey of videos on a real S3 server: of all of them, again with cached indexes, and of a sample."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from benchmarks.media.clips import BenchClip
from reelabel.sampling.options import Sampling
from tasks.survey.take import SurveyOptions, take_survey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectStore

# Long enough that their indexes are cached.
_CLIPS = tuple(BenchClip(width_px=640, height_px=360, gop=gop, length_s=60) for gop in (60, 250))
_STEP_S = 0.001  # between the segments of one video: each is a clip of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """Cost of one survey.

    Attributes:
        name: What was surveyed.
        rows: Rows of the manifest.
        seen: Clips that were looked at.
        indexes_s: Seconds to read their indexes.
        total_s: Seconds of the whole survey, with reading the manifest and measuring this machine's rates.
        bytes_read: Bytes of the videos that were read.
    """

    name: str
    rows: int
    seen: int
    indexes_s: float
    total_s: float
    bytes_read: int


def measure_survey(
    folder: Path, *, settings: Settings, objects: ObjectStore, videos: int, rows: int, sample: int
) -> Iterator[SurveyRow]:
    """Survey videos without a cached index, then again, then a sample of many rows.

    Args:
        folder: Folder that keeps the clips.
        settings: Settings of the store.
        objects: The store.
        videos: Number of videos on the store: two clips in turn, each time as a file with bytes of its own.
        rows: Rows of the large manifest, each a segment of one of the videos.
        sample: Clips drawn from it.
    """
    root_uri = f"{settings.store.uri}/bench-survey"
    uris = _upload(folder, objects, root_uri, videos)
    every = _manifest(folder, uris, videos)
    many = _manifest(folder, uris, rows)
    yield _measure("all, no index cached", every, settings, videos, None)
    yield _measure("all, indexes cached", every, settings, videos, None)
    yield _measure("a sample", many, settings, rows, sample)


def _upload(folder: Path, objects: ObjectStore, root_uri: str, videos: int) -> list[str]:
    files = [clip.make(folder).read_bytes() for clip in _CLIPS]
    uris = [f"{root_uri}/{number:06}.mp4" for number in range(videos)]
    for number, uri in enumerate(uris):
        free_box = struct.pack(">I4sQ", 16, b"free", number)
        objects.replace(uri, files[number % len(files)] + free_box)
    return uris


def _manifest(folder: Path, uris: list[str], rows: int) -> Path:
    path = folder / f"survey-{len(uris)}-{rows}.parquet"
    numbers = pl.select(number=pl.int_range(rows)).lazy()
    videos = pl.LazyFrame({"video": range(len(uris)), "video_uri": uris}, schema_overrides={"video": pl.Int64})
    turns = pl.col("number") // len(uris)
    numbers.with_columns(video=pl.col("number") % len(uris)).join(videos, on="video", maintain_order="left").select(
        pl.format("job-{}", "number").alias("job_id"),
        "video_uri",
        pl.lit("What colour is the shape?").alias("prompt"),
        pl.concat_list(pl.lit("red"), pl.lit("blue")).alias("choices"),
        (turns * _STEP_S).alias("start_s"),
    ).sink_parquet(path)
    return path


def _measure(name: str, manifest: Path, settings: Settings, rows: int, sample: int | None) -> SurveyRow:
    started = time.perf_counter()
    survey = take_survey(
        str(manifest), settings, Sampling(max_pixels=602_112, size_multiple_px=28), SurveyOptions(sample=sample)
    )
    total_s = time.perf_counter() - started
    return SurveyRow(
        name=name,
        rows=rows,
        seen=survey.seen,
        indexes_s=survey.took_s,
        total_s=total_s,
        bytes_read=survey.bytes_read,
    )
