"""A survey: what the videos of a manifest are, and what a run on them will cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from reelabel.coverage import CoverageReason
from reelabel.errors import JobError
from reelabel.sources.object_info import redact_uri
from reelabel.unexpected import failing_alone
from tasks.survey.chunks import cost_of_chunks
from tasks.survey.estimate import METHOD, Estimate, estimate_share, estimate_total
from tasks.survey.measure import MachineRates  # noqa: TC001 - a field that pydantic reads
from tasks.survey.read import SeenClip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reelabel.index import VideoIndex
    from reelabel.sampling.options import Sampling
    from tasks.survey.clips import ManifestClips, Tags
    from tasks.survey.cost import ClipCost

_BINS = 24
_MOST_NAMES = 8
_QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many clips have a property.

    Attributes:
        name: The property: a code, or a value such as a codec.
        clips: Number of all clips, counted or estimated.
        seen: Number of the clips that were looked at.
        example: A URI of one, and why it has the property, if that is not obvious; empty otherwise.
    """

    name: str
    clips: Estimate
    seen: int
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """How a figure is distributed over the clips that were looked at.

    Attributes:
        name: The figure.
        unit: Its unit; empty for counts and shares.
        quantiles: Minimum, tenth percentile, median, ninetieth percentile and maximum.
        edges: Edges of the histogram's bins, one more than `counts`.
        counts: Clips in each bin.
        is_log: Whether the bins are of equal width on a logarithmic scale.
    """

    name: str
    unit: str
    quantiles: tuple[float, ...]
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    is_log: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSurvey:
    """The clips with jobs of one task and subtask.

    Attributes:
        task: The task; None for jobs without one.
        subtask: The subtask; None for jobs without one.
        clips: Number of clips in the manifest.
        seen: Those that were looked at.
        one_keyframe: Clips with one keyframe; None if none was looked at, as are the following.
        not_covered: Clips that their keyframes may not cover.
        dense: Clips for which a dense sampler is used.
        failed: Clips that cannot be used.
    """

    task: str | None
    subtask: str | None
    clips: int
    seen: int
    one_keyframe: Estimate | None
    not_covered: Estimate | None
    dense: Estimate | None
    failed: Estimate | None

    @property
    def title(self) -> str:
        """Task and subtask in one string."""
        return " / ".join(filter(None, (self.task, self.subtask))) or "no task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the indexes of a manifest's videos tell.

    Attributes:
        manifest: The manifest.
        jobs: Number of jobs.
        videos: Number of videos.
        clips: Number of clips: videos, or segments of videos, that jobs are about.
        seen: Clips that were looked at, drawn at random unless they are all.
        stopped_early: Whether a time limit ended the survey.
        took_s: Seconds that it took.
        bytes_read: Bytes that it read from stores.
        sampling: The sampling of the run that it forecasts.
        method: How the intervals were computed.
        failed: Clips that cannot be used, by the code of the failure.
        one_keyframe: Clips with one keyframe.
        not_covered: Clips that their keyframes may not cover.
        reasons: Those by reason; a clip may have several.
        dense: Clips for which a dense sampler is used.
        auto_dense: Clips that the sampler `auto` would send to its dense sampler.
        unlisted: Clips whose files do not list their keyframes, and are read whole.
        hdr: Clips that are HDR, as far as their headers state.
        codecs: Clips by codec, the commonest first, as are the following.
        containers: Clips by container.
        resolutions: Clips by width and height.
        frame_rates: Clips by frames per second.
        distributions: Of keyframes, gaps, coverage, length and size.
        groups: By task and subtask, if there are any.
        length_s: Seconds of all videos together; None if unknown, as are the following.
        size_bytes: Bytes of all videos together.
        frames: Frames that a run decodes, if none are cached.
        read_bytes: Bytes of videos that a run reads.
        extract_s: Seconds that it takes this machine to extract them.
        cache_bytes: Bytes of frame files.
        rates: This machine's rates, measured on some of these clips.
        chunks: Chunks of all clips together, if jobs are cut into them.
    """

    manifest: str
    jobs: int
    videos: int
    clips: int
    seen: int
    stopped_early: bool
    took_s: float
    bytes_read: int
    sampling: dict[str, Any]
    method: str = METHOD
    failed: tuple[Share, ...]
    one_keyframe: Share
    not_covered: Share
    reasons: tuple[Share, ...]
    dense: Share
    auto_dense: Share
    unlisted: Share
    hdr: Share
    codecs: tuple[Share, ...]
    containers: tuple[Share, ...]
    resolutions: tuple[Share, ...]
    frame_rates: tuple[Share, ...]
    distributions: tuple[Distribution, ...]
    groups: tuple[GroupSurvey, ...]
    length_s: Estimate | None
    size_bytes: Estimate | None
    frames: Estimate | None
    read_bytes: Estimate | None
    extract_s: Estimate | None
    cache_bytes: Estimate | None
    rates: MachineRates | None
    chunks: Estimate | None = None

    @property
    def is_sample(self) -> bool:
        """Whether only some clips were looked at, so that figures are estimates."""
        return self.seen < self.clips

    def to_json(self) -> str:
        """Serialise to JSON."""
        return TypeAdapter(Survey).dump_json(self, indent=2).decode()


@dataclass(frozen=True, slots=True)
class _Rows:
    """The clips that were looked at, with their costs; None for those that cannot be used."""

    seen: Sequence[SeenClip]
    costs: Sequence[ClipCost | None]
    of: int

    def share(self, name: str, has: Callable[[SeenClip, ClipCost], bool]) -> Share:
        found = [each for each, cost in self.usable() if has(each, cost)]
        return Share(name=name, clips=self.estimate(len(found)), seen=len(found), example=_example(found))

    def estimate(self, found: int) -> Estimate:
        return estimate_share(found, len(self.seen), self.of)

    def usable(self) -> list[tuple[SeenClip, ClipCost]]:
        return [(each, cost) for each, cost in zip(self.seen, self.costs, strict=True) if cost]

    def total(self, value: Callable[[SeenClip, ClipCost], float | None]) -> Estimate | None:
        """Estimate the total over all clips; those that cannot be used, or of which it is unknown, count as 0."""
        values = [(value(each, cost) or 0.0) if cost else 0.0 for each, cost in zip(self.seen, self.costs, strict=True)]
        return estimate_total(values, self.of)

    def by_name(self, name: Callable[[SeenClip], str]) -> tuple[Share, ...]:
        counts = Counter(name(each) for each, _ in self.usable())
        common = counts.most_common(_MOST_NAMES)
        rest = counts.total() - sum(count for _, count in common)
        named = [*common, *([("others", rest)] if rest else [])]
        return tuple(Share(name=text, clips=self.estimate(count), seen=count) for text, count in named)


def compile_survey(
    manifest: str,
    drawn: ManifestClips,
    seen: Sequence[SeenClip],
    sampling: Sampling,
    *,
    rates: MachineRates | None,
    took_s: float,
) -> Survey:
    """Compile a survey from the clips that were looked at, at least one, for a run with a sampling.

    Without this machine's rates, seconds and cache are left out.
    """
    seen, costs = zip(*(_with_cost(each, sampling) for each in seen), strict=True)
    rows = _Rows(seen, costs, drawn.clips)
    return Survey(
        manifest=manifest,
        jobs=drawn.jobs,
        videos=drawn.videos,
        clips=drawn.clips,
        seen=len(seen),
        stopped_early=len(seen) < len(drawn.drawn),
        took_s=took_s,
        bytes_read=sum({each.clip.uri: each.seen.bytes_read for each in seen if each.seen}.values()),
        sampling=sampling.to_dict(),
        failed=_failures(rows),
        one_keyframe=rows.share("one_keyframe", _is_one_keyframe),
        not_covered=rows.share("not_covered", lambda _, cost: not cost.coverage.is_good),
        reasons=tuple(
            rows.share(str(reason), lambda _, cost, reason=reason: reason in cost.coverage.reasons)  # type: ignore[misc]
            for reason in CoverageReason
        ),
        dense=rows.share("dense", lambda _, cost: cost.is_dense),
        auto_dense=rows.share("auto_dense", lambda _, cost: not cost.coverage.is_good),
        unlisted=rows.share("unlisted", lambda each, _: not _index(each).is_listed),
        hdr=rows.share("hdr", lambda each, _: bool(_index(each).info.hdr)),
        codecs=rows.by_name(lambda each: _index(each).info.codec or "unknown"),
        containers=rows.by_name(lambda each: _index(each).info.container or "unknown"),
        resolutions=rows.by_name(_resolution),
        frame_rates=rows.by_name(lambda each: f"{_index(each).info.fps:.3f}".rstrip("0").rstrip(".")),
        distributions=tuple(_distributions(rows)),
        groups=tuple(_groups(rows, drawn.clips_by_tags)),
        length_s=rows.total(lambda each, _: _index(each).info.duration_s * each.clip.share),
        size_bytes=rows.total(lambda each, _: _size(each) * each.clip.share),
        frames=rows.total(lambda _, cost: cost.frames),
        read_bytes=rows.total(lambda _, cost: cost.bytes_read),
        extract_s=rows.total(lambda _, cost: rates.extract_s(cost.frames or 0, cost.bytes_read)) if rates else None,
        cache_bytes=rows.total(lambda _, cost: (cost.stored or 0) * rates.bytes_per_frame) if rates else None,
        rates=rates,
        chunks=rows.total(lambda each, _: len(each.chunks)) if any(each.chunks for each in seen) else None,
    )


def _with_cost(each: SeenClip, sampling: Sampling) -> tuple[SeenClip, ClipCost | None]:
    """Return a clip with its cost, or as one that cannot be used because that cannot be estimated."""
    try:
        with failing_alone(f"The estimate for {redact_uri(each.clip.uri)}"):
            return each, cost_of_chunks(each, sampling)
    except JobError as error:
        return SeenClip(clip=each.clip, code=error.code, message=error.message), None


def _index(each: SeenClip) -> VideoIndex:
    """Return the index of a clip that can be used."""
    assert each.seen
    return each.seen.index


def _size(each: SeenClip) -> int:
    return each.seen.info.size_bytes if each.seen else 0


def _resolution(each: SeenClip) -> str:
    width_px, height_px = _index(each).info.shown_size
    return f"{width_px}x{height_px}" if width_px else "unknown"


def _is_one_keyframe(_: SeenClip, cost: ClipCost) -> bool:
    return cost.coverage.keyframes == 1 and CoverageReason.UNKNOWN not in cost.coverage.reasons


def _example(found: Sequence[SeenClip]) -> str:
    return found[0].clip.uri if found else ""


def _failures(rows: _Rows) -> tuple[Share, ...]:
    first: dict[str, SeenClip] = {}
    counts = Counter[str]()
    for each in rows.seen:
        if each.code:
            counts[each.code] += 1
            first.setdefault(each.code, each)
    return tuple(
        Share(name=code, clips=rows.estimate(count), seen=count, example=first[code].message)
        for code, count in counts.most_common()
    )


def _distributions(rows: _Rows) -> Iterable[Distribution]:
    listed = [(each, cost) for each, cost in rows.usable() if _index(each).is_listed]
    videos = {each.clip.uri: each for each, _ in rows.usable()}.values()
    coverages = [cost.coverage for _, cost in listed]
    figures: list[tuple[str, str, list[float | None], bool]] = [
        ("keyframes", "", [float(each.keyframes) for each in coverages], True),
        ("longest gap", "s", [each.longest_gap_s for each in coverages], True),
        ("coverage", "", [each.cover for each in coverages], False),
        ("length of videos", "s", [_index(each).info.duration_s or None for each in videos], True),
        ("size of videos", "bytes", [float(_size(each)) for each in videos], True),
    ]
    for name, unit, values, is_log in figures:
        known = [value for value in values if value is not None]
        if known:
            yield _distribution(name, unit, np.array(known), is_log=is_log)


def _distribution(name: str, unit: str, values: np.ndarray[Any, Any], *, is_log: bool) -> Distribution:
    is_log = is_log and values.min() > 0
    scaled = np.log(values) if is_log else values
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


def _groups(rows: _Rows, clips_by_tags: dict[Tags, int]) -> Iterable[GroupSurvey]:
    if all(tags.task is None and tags.subtask is None for tags in clips_by_tags):
        return
    for tags, clips in clips_by_tags.items():
        part = [(each, cost) for each, cost in zip(rows.seen, rows.costs, strict=True) if tags in each.clip.tags]
        seen = len(part)

        def estimate(
            has: Callable[[SeenClip, ClipCost], bool],
            part: Sequence[tuple[SeenClip, ClipCost | None]] = part,
            clips: int = clips,
        ) -> Estimate | None:
            found = sum(1 for each, cost in part if cost and has(each, cost))
            return estimate_share(found, len(part), clips) if part else None

        yield GroupSurvey(
            task=tags.task,
            subtask=tags.subtask,
            clips=clips,
            seen=seen,
            one_keyframe=estimate(_is_one_keyframe),
            not_covered=estimate(lambda _, cost: not cost.coverage.is_good),
            dense=estimate(lambda _, cost: cost.is_dense),
            failed=estimate_share(sum(1 for _, cost in part if not cost), seen, clips) if part else None,
        )
