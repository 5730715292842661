"""Dense sampling by a full linear decode, with one of `reelabel.sampling`.

This is the fallback for `reelabel.strategies.gop`, which decodes only the GOPs needed. It is used when the packets are
not sufficient or a GOP does not decode as they announce. A chosen frame that the decoder never outputs is replaced
by the next one it does, if that precedes the next chosen frame, as in vLLM's loaders with `frame_recovery`; or left
out, if the sampling says so.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from reelabel.containers.stream_properties import frame_rate, pts_to_s
from reelabel.decode.assemble import assemble_frames
from reelabel.errors import NoFramesError, SamplingRefusedError
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, deviations_s
from reelabel.segment import lie_in_windows, select_segment
from reelabel.text import pluralize
from reelabel.wanted import Positions

if TYPE_CHECKING:
    import numpy.typing as npt
    from av.video.stream import VideoStream

    from reelabel.decode.assemble import ExtractionRequest
    from reelabel.sampled_frames import SampledFrames
    from reelabel.strategies.linear import LinearVideo


_NAMED = 60  # of each kind, so that a note stays within what a decoding process may say


def extract_dense_linear(request: ExtractionRequest, video: LinearVideo) -> SampledFrames:
    """Extract what a dense sampler chooses of a video that is decoded from its beginning.

    Raises:
        VideoError: As `extract_keyframes` does.
    """
    stream = video.opened[1]
    if request.wanted or video.announced is None:
        choice, note = choose_positions(request, len(video.pts), video.times.times_s, stream), ""
    else:
        announced_s = pts_to_s(video.announced, stream.time_base)
        wanted = choose_positions(request, len(video.announced), announced_s, stream)
        decoded = [pts or 0 for pts in video.pts]
        recovers = request.sampling.frame_recovery is not False
        choice, note = _map_to_decoded(wanted, video.announced, decoded, recovers=recovers)
    frames = video.take({position: video.shown[position] for position in choice.positions})
    got = assemble_frames(
        request, video.describe, chosen=choice.positions, frames=frames, summary=video.summary, method="linear"
    )
    return replace(choice.measured(got), reason="; ".join(filter(None, [video.note, note, got.reason])))


class SampledPositions(NamedTuple):
    """The frames a sampler chose.

    Attributes:
        positions: Positions in the linear decode, ascending, with repeats.
        instants_s: The instants they were chosen for, in seconds; None if the sampler targets no instants.
        order: The order in which they are shown, if another: indices into `positions`.
    """

    positions: list[int]
    instants_s: list[float] | None
    order: npt.NDArray[np.int64] | None = None

    def measured(self, got: SampledFrames) -> SampledFrames:
        """Put the picks in order, and add each one's deviation from its instant."""
        if self.order is not None:
            return replace(got, picks=got.picks[self.order])
        if self.instants_s is None:
            return got
        return replace(got, deviation_s=got.time_s[got.picks] - np.array(self.instants_s))


def choose_positions(
    request: ExtractionRequest,
    frames: int,
    times_s: npt.NDArray[np.float64] | None,
    stream: VideoStream,
    *,
    first_s: float | None = None,
) -> SampledPositions:
    """Choose frames from the stream properties that OpenCV reports, as vLLM's loaders do.

    Args:
        request: The request.
        frames: Number of the video's frames, or of those that determine which ones lie in the segment.
        times_s: When they are shown, in seconds, never falling; None if unknown.
        stream: The video's stream.
        first_s: When the video's first frame is shown; None if that is the first of them.
    """
    if not frames:
        raise NoFramesError("No frame of the video can be decoded; the file is probably damaged.")
    request.stats.first_s = float(times_s[0]) if first_s is None and times_s is not None else first_s
    if request.wanted:
        is_among = isinstance(request.wanted, Positions)  # the segment of instants only narrows what is read
        within = _segment_positions(request, times_s, frames, first_s=first_s) if is_among else np.arange(frames)
        chosen = request.wanted.choose(within, times_s, first_s=first_s)
        order = np.argsort(chosen, kind="stable")
        return SampledPositions(chosen[order].tolist(), None, np.argsort(order))
    fps = frame_rate(stream)
    numbers = _segment_positions(request, times_s, frames, first_s=first_s)
    facts = VideoProperties(
        total_frames=len(numbers),
        fps=fps,
        duration_s=len(numbers) / fps if fps else 0.0,
        width_px=stream.codec_context.width,
        height_px=stream.codec_context.height,
        times_s=None if times_s is None else times_s[numbers],
    )
    indices, deviations = choose_indices(request.sampling, facts), deviations_s(request.sampling, facts)
    order = np.argsort(indices, kind="stable")
    positions = numbers[indices[order]].tolist()
    if deviations is None:
        return SampledPositions(positions, None)
    assert facts.times_s is not None
    return SampledPositions(positions, (facts.times_s[indices] - deviations)[order].tolist())


def _segment_positions(
    request: ExtractionRequest,
    times_s: npt.NDArray[np.float64] | None,
    frames: int,
    *,
    first_s: float | None = None,
) -> npt.NDArray[np.int64]:
    """Return the frames in the segment, as if the video had been trimmed to it."""
    if request.segment.is_whole and not request.windows:
        return np.arange(frames)
    if times_s is None:
        raise SamplingRefusedError(
            "The video has no timestamps, so a segment of it cannot be located; remove start_s and end_s."
        )
    first_s = float(times_s[0]) if first_s is None else first_s
    found = select_segment(times_s, request.segment, first_s=first_s)
    request.stats.starts_s = float(times_s[found.numbers].min())
    request.stats.is_empty = found.is_empty
    if not request.windows:
        return found.numbers
    since_s = times_s[found.numbers] - first_s
    numbers = found.numbers[lie_in_windows(since_s, request.windows)]
    if not numbers.size:
        raise SamplingRefusedError("No frame of the video lies in the wanted windows.")
    return numbers


def _map_to_decoded(
    wanted: SampledPositions, announced: list[int], shown: list[int], *, recovers: bool
) -> tuple[SampledPositions, str]:
    """Map positions among the announced frames to positions among the decoded ones.

    Returns:
        The mapped choice, and a note on the frames that are missing from it; empty if there are none.

    Raises:
        NoFramesError: Neither the chosen frames nor any replacement could be decoded.
    """
    chosen, instants_s = [], []
    replaced, lost = dict[int, int](), dict[int, None]()
    unique = list(dict.fromkeys(wanted.positions))
    limits = dict(zip(unique, [announced[position] for position in unique[1:]] + [announced[-1] + 1], strict=True))
    for row, position in enumerate(wanted.positions):
        found = bisect_left(shown, announced[position])
        limit = limits[position] if recovers else announced[position] + 1
        if found == len(shown) or shown[found] >= limit:
            lost[position] = None
            continue
        chosen.append(found)
        instants_s += wanted.instants_s[row : row + 1] if wanted.instants_s else []
        if shown[found] != announced[position]:
            replaced[position] = bisect_left(announced, shown[found])
    if not chosen:
        raise NoFramesError("None of the chosen frames can be decoded; the file is probably damaged.")
    return SampledPositions(chosen, instants_s or None), _note(replaced, lost)


def _note(replaced: dict[int, int], lost: dict[int, None]) -> str:
    """Name the frames that do not decode, by their positions among those that the file announces."""
    notes = []
    if replaced:
        pairs = _listed([f"{broken} by {good}" for broken, good in replaced.items()])
        notes.append(f"{pluralize(len(replaced), 'broken frame')} replaced by the next good one: {pairs}")
    if lost:
        notes.append(f"{pluralize(len(lost), 'broken frame')} left out: {_listed([str(each) for each in lost])}")
    return "; ".join(notes)


def _listed(names: list[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest:,} more" if rest > 0 else "")
