"""Compiles a survey: a profile of a manifest's videos, and the cost of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from reelabel.coverage import CoverageReason
from reelabel.errors import JobError
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.evaluation.scores import Estimate  # noqa: TC001 - a field that pydantic reads
from tasks.survey.clips import METHOD, estimate_share, estimate_total
from tasks.survey.cost import cost_of_chunks
from tasks.survey.measure import MachineRates  # noqa: TC001 - a field that pydantic reads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reelabel.sampling.options import Sampling
    from tasks.survey.clips import ManifestClips, Tags
    from tasks.survey.read import SeenClip

_BINS, _DIGITS = 24, 9
_MOST_NAMES = 8
_QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many clips have a property."""

    name: str  # the property: a code, or a value such as a codec
    clips: Estimate  # number among all clips
    seen: int  # number among the surveyed clips
    example: str = ""  # URI of one of them, redacted, or the message of a failure; may be empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    name: str
    unit: str  # empty for counts and shares
    quantiles: tuple[float, ...]  # minimum, tenth percentile, median, ninetieth percentile and maximum
    edges: tuple[float, ...]  # of the histogram's bins, one more than `counts`
    counts: tuple[int, ...]  # clips in each bin
    is_log: bool  # whether the bins are of equal width on a logarithmic scale


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """The clips with jobs of one task and subtask."""

    task: str | None
    subtask: str | None
    clips: int
    seen: int  # number of surveyed clips
    one_keyframe: Estimate | None  # clips with one keyframe; this and the following are None if no clip was surveyed
    not_covered: Estimate | None  # clips that their keyframes may not cover
    dense: Estimate | None  # clips for which a dense sampler is used
    failed: Estimate | None

    @property
    def title(self) -> str:
        return " / ".join(filter(None, (self.task, self.subtask))) or "no task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    manifest: str
    jobs: int
    videos: int
    clips: int  # videos, or segments of videos, that jobs are about
    seen: int  # surveyed clips, drawn at random unless they are all
    stopped_early: bool
    took_s: float
    bytes_read: int  # bytes that the survey read from stores
    sampling: dict[str, Any]  # the sampling of the run that it estimates
    method: str = METHOD
    failed: tuple[Share, ...]  # clips that cannot be used, by the code of the failure
    one_keyframe: Share
    not_covered: Share  # clips that their keyframes may not cover, which the sampler `auto` sends to its dense sampler
    reasons: tuple[Share, ...]  # the same by reason; a clip may have several
    dense: Share  # clips for which a dense sampler is used
    unlisted: Share  # clips whose files do not list their keyframes, and are read whole
    hdr: Share  # clips that are HDR according to their headers
    # Clips by codec, the most common first; likewise `containers`, `resolutions` and `frame_rates`.
    codecs: tuple[Share, ...]
    containers: tuple[Share, ...]
    resolutions: tuple[Share, ...]
    frame_rates: tuple[Share, ...]
    distributions: tuple[Distribution, ...]  # of keyframes, gaps, coverage, length and size
    groups: tuple[GroupSurvey, ...]
    length_s: Estimate | None  # seconds of all videos together; this and the following are None if unknown
    size_bytes: Estimate | None  # bytes of all videos together
    frames: Estimate | None  # that a run decodes, if none are cached
    read_bytes: Estimate | None  # bytes of videos that a run reads
    extract_s: Estimate | None  # seconds for this machine to extract them
    extract_cost: Estimate | None  # cost of that; None without a price
    cache_bytes: Estimate | None
    rates: MachineRates | None  # this machine's rates, measured on some of these clips
    chunks: Estimate | None = None  # of all clips together, if jobs are cut into them

    @property
    def is_sample(self) -> bool:
        """Whether only some clips were surveyed: figures are then estimates."""
        return self.seen < self.clips

    def to_json(self) -> str:
        return TypeAdapter(Survey).dump_json(self, indent=2).decode()


# A row per surveyed clip. If it cannot be used, all but `_KEY` is null.
_TAGS = pl.List(pl.Struct({"task": pl.String, "subtask": pl.String}))
_Types = dict[str, "pl.DataType | type[pl.DataType]"]
_KEY: _Types = {"uri": pl.String, "tags": _TAGS, "share": pl.Float64, "code": pl.String, "message": pl.String}
_CLIPS = pl.Schema(
    _KEY
    | dict.fromkeys(("codec", "container", "size", "fps"), pl.String)
    | dict.fromkeys(("is_good", "is_dense", "is_listed", "is_one_keyframe", "is_hdr"), pl.Boolean)
    | {"reasons": pl.List(pl.String), "keyframes": pl.Float64, "longest_gap_s": pl.Float64, "cover": pl.Float64}
    | {"duration_s": pl.Float64, "size_bytes": pl.Int64, "index_bytes": pl.Int64}
    | dict.fromkeys(("frames", "stored", "bytes_read", "chunks"), pl.Int64)
)
_IS_USABLE = pl.col("code").is_null()


def compile_survey(
    manifest: str,
    drawn: ManifestClips,
    seen: Sequence[SeenClip],
    sampling: Sampling,
    *,
    rates: MachineRates | None,
    took_s: float,
    per_cpu_hour: float = 0.0,
) -> Survey:
    """Compile a survey from at least one surveyed clip, for a run with a sampling.

    Without this machine's rates, seconds and cache size are left out.
    """
    clips = pl.DataFrame([_row(each, sampling) for each in seen], schema=_CLIPS)
    usable = clips.filter(_IS_USABLE)

    def estimate(found: int) -> Estimate:
        return estimate_share(found, len(clips), drawn.clips)

    def share(name: str, has: pl.Expr) -> Share:
        found = usable.filter(has)["uri"]
        example = redact_uri(found[0]) if len(found) else ""
        return Share(name=name, clips=estimate(len(found)), seen=len(found), example=example)

    def kinds(column: str) -> tuple[Share, ...]:
        counts = _count_by(usable, column)
        rest = len(usable) - sum(count for _, count in counts[:_MOST_NAMES])
        named = [*counts[:_MOST_NAMES], *([("others", rest)] if rest else [])]
        return tuple(Share(name=text, clips=estimate(count), seen=count) for text, count in named)

    def total(value: pl.Expr | str) -> Estimate | None:
        """Estimate the total over all clips; unusable clips and unknown values count as 0."""
        column = pl.col(value) if isinstance(value, str) else value
        return estimate_total(clips.select(column.fill_null(0).cast(pl.Float64)).to_series().to_list(), drawn.clips)

    return Survey(
        manifest=manifest,
        jobs=drawn.jobs,
        videos=drawn.videos,
        clips=drawn.clips,
        seen=len(clips),
        stopped_early=len(clips) < len(drawn.drawn),
        took_s=took_s,
        bytes_read=int(usable.unique("uri", keep="last")["index_bytes"].sum()),
        sampling=sampling.to_dict(),
        failed=tuple(
            Share(
                name=code,
                clips=estimate(count),
                seen=count,
                example=clips.filter(pl.col("code") == code)["message"][0],
            )
            for code, count in _count_by(clips.filter(~_IS_USABLE), "code")
        ),
        one_keyframe=share("one_keyframe", pl.col("is_one_keyframe")),
        not_covered=share("not_covered", ~pl.col("is_good")),
        reasons=tuple(share(str(each), pl.col("reasons").list.contains(str(each))) for each in CoverageReason),
        dense=share("dense", pl.col("is_dense")),
        unlisted=share("unlisted", ~pl.col("is_listed")),
        hdr=share("hdr", pl.col("is_hdr")),
        codecs=kinds("codec"),
        containers=kinds("container"),
        resolutions=kinds("size"),
        frame_rates=kinds("fps"),
        distributions=tuple(_distributions(usable)),
        groups=tuple(_groups(clips, drawn.clips_by_tags)),
        length_s=total(pl.col("duration_s") * pl.col("share")),
        size_bytes=total(pl.col("size_bytes") * pl.col("share")),
        frames=total("frames"),
        read_bytes=total("bytes_read"),
        extract_s=total(_extract_ms(rates) / rates.processes / 1e3) if rates else None,
        extract_cost=total(_extract_ms(rates) / 3.6e6 * per_cpu_hour) if rates and per_cpu_hour else None,
        cache_bytes=total(pl.col("stored") * rates.bytes_per_frame) if rates else None,
        rates=rates,
        chunks=total("chunks") if any(each.chunks for each in seen) else None,
    )


def _row(each: SeenClip, sampling: Sampling) -> dict[str, Any]:
    clip, seen, cost = each.clip, each.seen, None
    row: dict[str, Any] = {
        "uri": clip.uri,
        "tags": [{"task": tags.task, "subtask": tags.subtask} for tags in clip.tags],
        "share": clip.share,
    }
    try:
        with failing_alone(f"The estimate for {redact_uri(clip.uri)}"):
            cost = cost_of_chunks(each, sampling)
    except JobError as error:
        return row | {"code": error.code, "message": error.message}
    if seen is None or cost is None:
        return row | {"code": each.code, "message": each.message}
    info, coverage = seen.index.info, cost.coverage
    width_px, height_px = info.shown_size
    is_listed = seen.index.is_listed
    return row | {
        "codec": info.codec or "unknown",
        "container": info.container or "unknown",
        "size": f"{width_px}x{height_px}" if width_px else "unknown",
        "fps": f"{info.fps:.3f}".rstrip("0").rstrip("."),
        "is_good": coverage.is_good,
        "is_dense": cost.is_dense,
        "is_listed": is_listed,
        "is_one_keyframe": coverage.keyframes == 1 and CoverageReason.UNKNOWN not in coverage.reasons,
        "is_hdr": bool(info.hdr),
        "reasons": [str(reason) for reason in coverage.reasons],
        "keyframes": float(coverage.keyframes) if is_listed else None,
        "longest_gap_s": coverage.longest_gap_s if is_listed else None,
        "cover": coverage.cover if is_listed else None,
        "duration_s": info.duration_s,
        "size_bytes": seen.info.size_bytes,
        "index_bytes": seen.bytes_read,
        "frames": cost.frames,
        "stored": cost.stored,
        "bytes_read": cost.bytes_read,
        "chunks": len(each.chunks),
    }


def _extract_ms(rates: MachineRates) -> pl.Expr:
    frames = pl.col("frames").fill_null(0) * rates.decode_ms_per_frame
    return frames + pl.col("bytes_read") * rates.fetch_ms_per_byte


def _count_by(clips: pl.DataFrame, column: str) -> list[tuple[str, int]]:
    counts = clips.group_by(column, maintain_order=True).len()
    return counts.sort("len", descending=True, maintain_order=True).rows()


def _distributions(usable: pl.DataFrame) -> Iterator[Distribution]:
    videos = usable.unique("uri", keep="last").with_columns(pl.col("duration_s").replace(0, None))
    figures: list[tuple[str, str, pl.Series, bool]] = [
        ("keyframes", "", usable["keyframes"], True),
        ("longest gap", "s", usable["longest_gap_s"], True),
        ("coverage", "", usable["cover"], False),
        ("length of videos", "s", videos["duration_s"], True),
        ("size of videos", "bytes", videos["size_bytes"], True),
    ]
    for name, unit, values, is_log in figures:
        if known := values.drop_nulls().to_list():
            yield _distribution(name, unit, np.array(known, np.float64), is_log=is_log)


def _distribution(name: str, unit: str, values: np.ndarray[Any, Any], *, is_log: bool) -> Distribution:
    is_log = is_log and values.min() > 0
    # Rounded: a range of a few units in the last place cannot be divided into bins.
    scaled = np.round(np.log(values) if is_log else values, _DIGITS)
    ends = (0.0, 1.0) if name == "coverage" else None
    counts, edges = np.histogram(scaled, bins=_BINS, range=ends)
    edges = np.exp(edges) if is_log else edges
    return Distribution(
        name=name,
        unit=unit,
        quantiles=tuple(np.quantile(values, _QUANTILES).tolist()),
        edges=tuple(edges.tolist()),
        counts=tuple(counts.tolist()),
        is_log=is_log,
    )


def _groups(clips: pl.DataFrame, clips_by_tags: dict[Tags, int]) -> Iterator[GroupSurvey]:
    if all(tags.task is None and tags.subtask is None for tags in clips_by_tags):
        return
    # A clip is in one group for each distinct tag of its jobs.
    tagged = clips.explode("tags").unnest("tags")
    for tags, count in clips_by_tags.items():
        part = tagged.filter(pl.col("task").eq_missing(tags.task), pl.col("subtask").eq_missing(tags.subtask))
        properties = {
            "one_keyframe": pl.col("is_one_keyframe"),
            "not_covered": ~pl.col("is_good"),
            "dense": pl.col("is_dense"),
            "failed": ~_IS_USABLE,
        }
        found = part.select(has.sum().alias(name) for name, has in properties.items()).row(0, named=True)
        estimates = {
            name: estimate_share(each, len(part), count) if len(part) else None for name, each in found.items()
        }
        yield GroupSurvey(task=tags.task, subtask=tags.subtask, clips=count, seen=len(part), **estimates)
