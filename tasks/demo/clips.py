"""Encoding of demo clips in several containers, and their manifest."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import av
import numpy as np
import polars as pl

from tasks.demo.shapes import QUESTIONS, draw_shape, render_frames

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from tasks.demo.shapes import MovingShape

FPS = 16
MANIFEST_NAME = "manifest.parquet"
_DURATION_S = (3.0, 6.0)  # even with the longest GOP, three seconds contain four keyframes
_SCHEMA: dict[str, Any] = {
    "job_id": pl.String,
    "video_uri": pl.String,
    "prompt": pl.String,
    "choices": pl.List(pl.String),
    "answer": pl.String,
    "task": pl.String,
    "subtask": pl.String,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    container: str  # file extension, from which FFmpeg infers the format
    codec: str  # FFmpeg name of the encoder
    gop: int  # frames from one keyframe to the next
    b_frames: int = 0  # maximum consecutive B-frames; H.264 only

    @property
    def options(self) -> dict[str, str]:
        """Encoder options that place a keyframe exactly every `gop` frames."""
        options = {"g": str(self.gop), "keyint_min": str(self.gop), "crf": "18"}
        if self.codec == "libvpx-vp9":
            return options | {"deadline": "realtime", "cpu-used": "8"}
        # Scene-cut detection would make almost every flat frame a keyframe. On frames as small as these,
        # x264's macroblock tree reads past their edge, so its output would not be reproducible.
        return options | {"sc_threshold": "0", "bf": str(self.b_frames), "x264-params": "mbtree=0"}


ENCODINGS = (
    Encoding(container="mp4", codec="libx264", gop=8),
    Encoding(container="mkv", codec="libx264", gop=12, b_frames=2),
    Encoding(container="webm", codec="libvpx-vp9", gop=4),
    Encoding(container="mp4", codec="libx264", gop=12, b_frames=2),
    Encoding(container="mkv", codec="libx264", gop=4),
    Encoding(container="webm", codec="libvpx-vp9", gop=12),
    Encoding(container="mp4", codec="libx264", gop=4, b_frames=2),
    Encoding(container="webm", codec="libvpx-vp9", gop=8),
)


def make_demo(folder: Path, *, seed: int, clips: int = 32, uri_prefix: str | None = None) -> pl.DataFrame:
    """Write clips of moving shapes, and a manifest with three jobs per clip; return the manifest.

    The folder is created if it is missing; its clips, `clip-0000.mp4` and so on, cycle through ENCODINGS. The seed
    determines every pixel; with the same encoder, the same seed produces the same clips. Videos are named by
    `uri_prefix`, such as `s3://bucket/demo`, or else by the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    prefix = (uri_prefix or str(folder.resolve())).rstrip("/")
    rows: list[dict[str, object]] = []
    for index, encoding in enumerate(islice(cycle(ENCODINGS), clips)):
        shape, frames = draw_clip(rng)
        name = f"clip-{index:04d}.{encoding.container}"
        write_clip(folder / name, frames, encoding)
        truths = {task: shape.truth(task) for task in QUESTIONS}
        rows += clip_jobs(f"{prefix}/{name}", truths, subtask=encoding.container)
    return write_manifest(folder / MANIFEST_NAME, rows)


def draw_clip(rng: np.random.Generator) -> tuple[MovingShape, npt.NDArray[np.uint8]]:
    """Draw a clip of one moving shape, three to six seconds long; frames (T, SIDE_PX, SIDE_PX, 3)."""
    shape = draw_shape(rng)
    count = round(rng.uniform(*_DURATION_S) * FPS)
    return shape, render_frames(shape, np.linspace(0, 1, count), rng)


def write_clip(path: Path, frames: npt.NDArray[np.uint8], encoding: Encoding) -> None:
    """Encode RGB frames (T, H, W, 3) at FPS frames per second, overwriting `path`."""
    # Without bitexact, Matroska files contain a random id.
    with av.open(path, "w", container_options={"fflags": "bitexact"}) as container:
        stream = container.add_stream(encoding.codec, rate=FPS, options=encoding.options)
        assert isinstance(stream, av.VideoStream)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 0  # constant quality; otherwise VP9 would target a bit rate
        stream.thread_count = 1  # the same bytes on any machine
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())


def clip_jobs(video_uri: str, truths: dict[str, str], *, subtask: str) -> list[dict[str, object]]:
    """Return manifest rows with all QUESTIONS about one clip; `truths` maps each task to its known answer."""
    stem = video_uri.rpartition("/")[2].rpartition(".")[0]
    return [
        {
            "job_id": f"{stem}-{task}",
            "video_uri": video_uri,
            "prompt": prompt,
            "choices": list(choices),
            "answer": truths[task],
            "task": task,
            "subtask": subtask,
        }
        for task, (prompt, choices) in QUESTIONS.items()
    ]


def write_manifest(path: Path, rows: list[dict[str, Any]], **more: type[pl.DataType]) -> pl.DataFrame:
    """Write manifest rows, with more columns than a run reads if these are given, as Parquet."""
    manifest = pl.DataFrame(rows, schema=_SCHEMA | more)
    manifest.write_parquet(path)
    return manifest
