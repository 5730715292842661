"""Draws a random sample of a manifest's clips, and estimates figures of all clips with 95% intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from reelabel.segment import WHOLE, Segment
from tasks.evaluation.scores import Estimate
from tasks.evaluation.significance import Z
from tasks.manifest.media import videos_of
from tasks.manifest.schema import ROW

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.manifest.table import JobTable

_SEED = 20_000
_CLIP = ("video_uri", "start_s", "end_s")
_TAGS = ("task", "subtask")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """The task and subtask of a job; None if it has none."""

    task: str | None = None
    subtask: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip:
    """A video, or a segment of one, that jobs are about."""

    uri: str
    segment: Segment = WHOLE
    tags: tuple[Tags, ...] = (Tags(),)  # the distinct tags of its jobs
    share: float = 1.0  # weight in figures that are counted per video: 1 divided by the number of the video's clips


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestClips:
    """The clips of a manifest, and those drawn for the survey."""

    drawn: Sequence[Clip]  # the clips to survey in random order, so that the first of them are a random sample, too
    clips: int
    videos: int
    jobs: int
    clips_by_tags: dict[Tags, int]  # number of clips with jobs of each task and subtask


def draw_clips(jobs: JobTable, most: int | None = None) -> ManifestClips:
    """Draw clips of a manifest at random, with a fixed seed and without replacement; None draws all."""
    tagged = pl.concat([_tagged(part) for part in jobs.parts()]).unique()
    clips = tagged.select(_CLIP).unique().sort(_CLIP, nulls_last=False)
    per_video = clips.group_by("video_uri").len("clips_of_video")
    order = np.random.default_rng(_SEED).permutation(len(clips))[:most]
    drawn = clips[order].with_row_index("number").join(per_video, on="video_uri", how="left")
    tags = pl.struct(*_TAGS).sort().alias("tags")
    rows = drawn.join(tagged, on=_CLIP, how="left", nulls_equal=True).group_by("number", *_CLIP, "clips_of_video")
    counts = tagged.group_by(_TAGS).len().sort(_TAGS)
    return ManifestClips(
        drawn=[_clip(row) for row in rows.agg(tags).sort("number").iter_rows(named=True)],
        clips=len(clips),
        videos=len(per_video),
        jobs=len(jobs),
        clips_by_tags={Tags(task=task, subtask=subtask): count for task, subtask, count in counts.iter_rows()},
    )


def _tagged(part: pl.DataFrame) -> pl.DataFrame:
    """Return the distinct pairs of a clip and the tags of a job; a start of 0 counts as none; images are left out."""
    start = pl.when(pl.col("start_s") != 0).then(pl.col("start_s")).alias("start_s")
    if part["media"].null_count() < len(part):
        part = part.drop("video_uri").join(videos_of(part).rename({"uri": "video_uri"}), on=ROW)
    return part.select(*_CLIP, *_TAGS).with_columns(start).unique()


def _clip(row: dict[str, object]) -> Clip:
    return Clip(
        uri=str(row["video_uri"]),
        segment=Segment.of(row["start_s"], row["end_s"]),  # type: ignore[arg-type]
        tags=tuple(Tags(**each) for each in row["tags"]),  # type: ignore[attr-defined]
        share=1 / int(str(row["clips_of_video"])),
    )


METHOD = (
    "95% intervals: for shares, Wilson's score interval; for totals, the normal approximation; both with the "
    "correction for a finite population."
)


def estimate_share(found: int, seen: int, of: int) -> Estimate:
    """Estimate how many clips have a property, from a sample of at least one.

    Wilson's score interval (1927) for the sample size that has the same precision in an infinite population, by the
    factor (N - n) / (N - 1).
    """
    if seen >= of:
        return Estimate(value=found, low=found, high=found)
    share, size = found / seen, seen * (of - 1) / (of - seen)
    centre = (share + Z**2 / (2 * size)) / (1 + Z**2 / size)
    half = Z / (1 + Z**2 / size) * sqrt(share * (1 - share) / size + Z**2 / (4 * size**2))
    # The sample is known.
    low, high = max(found, of * (centre - half)), min(of - (seen - found), of * (centre + half))
    value = share * of
    return Estimate(value=value, low=min(low, value), high=max(high, value))  # despite rounding at the bounds


def estimate_total(values: Sequence[float], of: int) -> Estimate | None:
    """Estimate the total of a figure over all clips; None from a sample of no clip, or of one out of several.

    The mean times the number of clips, with the standard error of a simple random sample, corrected for a finite
    population (Cochran, Sampling Techniques, 1977, section 2.8).
    """
    seen, total = len(values), float(np.sum(values))
    if seen >= of:
        return Estimate(value=total, low=total, high=total) if seen else None
    if seen < 2:  # noqa: PLR2004 - which have a variance
        return None
    value = total / seen * of
    half = Z * of * float(np.std(values, ddof=1)) * sqrt((1 - seen / of) / seen)
    return Estimate(value=value, low=max(total, value - half), high=value + half)
