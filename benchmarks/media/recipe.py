"""Drawing, encoding and muxing one clip, whose frames all differ."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

import av
import numpy as np
from av.audio.stream import AudioStream
from av.video.reformatter import ColorRange
from av.video.stream import VideoStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy.typing as npt
    from av.container import OutputContainer

_SAMPLE_RATE_HZ = 48_000
_NUMBER_BITS = 8
_NOISE = 24

# SVT-AV1 prints its settings at every start unless its log level is errors only.
os.environ.setdefault("SVT_LOG", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Parameters of a clip.

    Attributes:
        encoder: FFmpeg's name of the encoder.
        muxer: FFmpeg's name of the container format.
        frames: Number of frames to encode.
        rate_fps: Frames per second, unless `ticks` says otherwise.
        gop: Frames from one keyframe to the next.
        options: Options of the encoder.
        mux_options: Options of the muxer.
        ticks: Presentation time of a frame in 1/(10 * rate_fps) seconds; None is a constant rate from zero.
        turn: Counter-clockwise degrees, horizontal flip, vertical flip of the display matrix.
        sample_aspect: Width to height of one pixel.
        is_full_range: Luma spans 0 to 255; None leaves it to the encoder.
        sound: Encoder of an audio stream, which comes first in the file; empty for none.
        skipped_packets: Video packets to omit at the start.
        times_of_decoding: Whether frames are presented when they are decoded, as by muxers that know no B-frames.
        recordings: Clips that follow each other in the file, each with frames of its own, and a clock that starts anew.
        cut_head_bytes: Bytes that all recordings but the first leave out at their start.
        first_number: Number that is drawn into the first frame.
        is_streamed: Whether the output is not seekable, so that the muxer cannot go back to write an index.
        change: Applied to the finished bytes.
    """

    encoder: str
    muxer: str
    pix_fmt: str = "yuv420p"
    width_px: int = 96
    height_px: int = 64
    frames: int = 40
    rate_fps: int = 25
    gop: int = 10
    b_frames: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    mux_options: Mapping[str, str] = field(default_factory=dict)
    ticks: Callable[[int], int] | None = None
    turn: tuple[int, bool, bool] | None = None
    sample_aspect: Fraction | None = None
    is_full_range: bool | None = None
    sound: str = ""
    skipped_packets: int = 0
    times_of_decoding: bool = False
    recordings: int = 1
    cut_head_bytes: int = 0
    first_number: int = 0
    is_streamed: bool = False
    change: Callable[[bytes], bytes] | None = None


class _Pipe:
    """An output that is not seekable."""

    def __init__(self, file: BinaryIO) -> None:
        self.write = file.write


def make_clip(recipe: Recipe) -> bytes:
    """Encode and mux a clip."""
    if recipe.recordings > 1:
        return b"".join(_make_recordings(recipe))
    with TemporaryDirectory(prefix="reelabel-") as folder:
        path = Path(folder) / "clip"
        # A real file, because some muxers reopen it to move the index.
        with path.open("wb") as file, own_scheduling():
            output = _Pipe(file) if recipe.is_streamed else f"file:{path}"
            _write(output, recipe)
        data = path.read_bytes()
    return recipe.change(data) if recipe.change else data


def _make_recordings(recipe: Recipe) -> Iterator[bytes]:
    for number in range(recipe.recordings):
        one = replace(recipe, recordings=1, first_number=recipe.first_number + number * recipe.frames)
        yield make_clip(one)[recipe.cut_head_bytes if number else 0 :]


@contextmanager
def own_scheduling() -> Iterator[None]:
    """Restore this thread's scheduling policy afterwards.

    As root, SVT-AV1 gives its caller the highest real-time priority, which later threads and processes would inherit,
    and starve all others.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _write(output: _Pipe | str, recipe: Recipe) -> None:
    # Without bitexact, some muxers write a random id or the date.
    options = {"fflags": "bitexact", **recipe.mux_options}
    with av.open(output, "w", format=recipe.muxer, options=options) as container:
        sound = _add_sound(container, recipe)
        stream = _add_video(container, recipe)
        for number, packet in enumerate(_video_packets(stream, recipe)):
            if recipe.times_of_decoding:
                packet.pts = packet.dts = number
            if number >= recipe.skipped_packets:
                container.mux(packet)
            if sound:
                _mux_sound(container, sound, number)
        if sound:
            container.mux(sound.encode())


def _add_video(container: OutputContainer, recipe: Recipe) -> VideoStream:
    stream = container.add_stream(recipe.encoder, rate=recipe.rate_fps, options=dict(recipe.options))
    assert isinstance(stream, VideoStream)
    stream.width, stream.height, stream.pix_fmt = recipe.width_px, recipe.height_px, recipe.pix_fmt
    codec = stream.codec_context
    codec.gop_size, codec.max_b_frames, codec.bit_rate = recipe.gop, recipe.b_frames, 400_000
    # More threads would make the bytes depend on the machine.
    codec.thread_count = 1
    if recipe.ticks:
        codec.time_base = Fraction(1, 10 * recipe.rate_fps)
    if recipe.sample_aspect:
        codec.sample_aspect_ratio = recipe.sample_aspect
    if recipe.is_full_range is not None:
        codec.color_range = ColorRange.JPEG if recipe.is_full_range else ColorRange.MPEG
    if recipe.turn:
        degrees, is_mirrored, is_flipped = recipe.turn
        stream.set_display_rotation(degrees, hflip=is_mirrored, vflip=is_flipped)
    return stream


def _video_packets(stream: VideoStream, recipe: Recipe) -> Iterator[av.Packet[VideoStream]]:
    for number in range(recipe.frames):
        picture = _draw_frame(recipe.first_number + number, width_px=recipe.width_px, height_px=recipe.height_px)
        frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
        if recipe.ticks:
            frame.pts, frame.time_base = recipe.ticks(number), Fraction(1, 10 * recipe.rate_fps)
        else:
            frame.pts, frame.time_base = number, Fraction(1, recipe.rate_fps)
        yield from stream.encode(frame)
    yield from stream.encode()


def _add_sound(container: OutputContainer, recipe: Recipe) -> AudioStream | None:
    if not recipe.sound:
        return None
    stream = container.add_stream(recipe.sound, rate=_SAMPLE_RATE_HZ, layout="mono")
    assert isinstance(stream, AudioStream)
    return stream


def _mux_sound(container: OutputContainer, stream: AudioStream, number: int) -> None:
    samples = np.random.default_rng(number).integers(-999, 999, (1, 1152), np.int16)
    frame = av.AudioFrame.from_ndarray(samples, format="s16", layout="mono")
    frame.sample_rate, frame.pts = _SAMPLE_RATE_HZ, number * samples.size
    frame.time_base = Fraction(1, _SAMPLE_RATE_HZ)
    container.mux(stream.encode(frame))


@lru_cache(maxsize=128)
def _draw_frame(number: int, *, width_px: int, height_px: int) -> npt.NDArray[np.uint8]:
    """Draw a frame: its number as black and white blocks over a moving ramp, with noise.

    The noise keeps encoders from skipping blocks, so that a frame decoded from the wrong reference differs.

    Returns:
        RGB pixels; shape (height_px, width_px, 3), uint8; the same for the same arguments.
    """
    rows, columns = np.mgrid[0:height_px, 0:width_px]
    ramp = np.stack([columns * 2 + number * 5, rows * 3 + number * 3, rows + columns + number * 7], -1) % 200
    noise = np.random.default_rng([number, width_px, height_px]).integers(0, _NOISE, ramp.shape)
    picture = (ramp + noise).astype(np.uint8)
    picture[: height_px // 4] = _blocks(number, width_px)[None, :, None]
    return picture


def _blocks(number: int, width_px: int) -> npt.NDArray[np.uint8]:
    """Return one row of pixels, shape (width_px,): a block per bit of the number, the highest first."""
    bit = np.arange(width_px) * _NUMBER_BITS // width_px
    return (((number >> (_NUMBER_BITS - 1 - bit)) & 1) * 255).astype(np.uint8)


def read_number(picture: npt.NDArray[np.uint8]) -> int:
    """Read the number that is drawn into a frame; RGB pixels of shape (H, W, 3)."""
    height_px, width_px, _ = picture.shape
    middles = (2 * np.arange(_NUMBER_BITS) + 1) * width_px // (2 * _NUMBER_BITS)
    bits = picture[height_px // 8, middles].mean(axis=-1) > 128  # noqa: PLR2004 - halfway between black and white
    return int(bits @ (1 << np.arange(_NUMBER_BITS)[::-1]))
