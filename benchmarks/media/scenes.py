"""Rendered scenes for `drop_similar`: static ones through a noisy camera, and moving ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt

    Picture = npt.NDArray[np.floating[Any]]

LENGTH_S = 60
_FPS = 10
_WIDTH_PX, _HEIGHT_PX, _BLOCK_PX = 320, 180, 20
_NOISE = 6.0  # standard deviation, of 255 levels: a camera indoors
_PERSON_PX = (60, 24)


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene.

    Attributes:
        name: Description.
        is_static: Whether most frames show nothing new.
        draw: Paints the scene at a time in seconds over a picture of the room.
    """

    name: str
    is_static: bool
    draw: Callable[[Picture, float], Picture]

    def make(self, folder: Path, *, length_s: int = LENGTH_S) -> Path:
        """Render the scene as H.264 below `folder` unless it exists; return its path."""
        path = folder / f"{self.name.replace(' ', '-')}-{length_s}s.mp4"
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part.mp4")
            self._render(unfinished, length_s)
            unfinished.replace(path)
        return path

    def _render(self, path: Path, length_s: int) -> None:
        rng = np.random.default_rng(1)
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=_FPS, options={"crf": "28", "preset": "veryfast"})
            stream.width, stream.height, stream.pix_fmt = _WIDTH_PX, _HEIGHT_PX, "yuv420p"
            for number in range(length_s * _FPS):
                picture = self.draw(_room(), number / _FPS)
                noisy = (picture + rng.normal(0, _NOISE, picture.shape)).clip(0, 255).astype(np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(noisy, format="rgb24")))
            container.mux(stream.encode())


def _room(seed: int = 0) -> Picture:
    blocks = np.random.default_rng(seed).integers(60, 180, (_HEIGHT_PX // _BLOCK_PX, _WIDTH_PX // _BLOCK_PX, 3))
    return np.kron(blocks, np.ones((_BLOCK_PX, _BLOCK_PX, 1)))


def _empty(room: Picture, _time_s: float) -> Picture:
    return room


def _walk(room: Picture, time_s: float) -> Picture:
    """Add a person who crosses the room in 12 s, back and forth."""
    height_px, width_px = _PERSON_PX
    left = round(abs(time_s % 24 - 12) / 12 * (_WIDTH_PX - width_px))
    room[100 : 100 + height_px, left : left + width_px] = (230, 30, 30)
    return room


def _visit(room: Picture, time_s: float) -> Picture:
    """Add the person for 6 s of every 20 s."""
    return _walk(room, time_s) if time_s % 20 < 6 else room  # noqa: PLR2004 - the scene's own times


def _lamp(room: Picture, time_s: float) -> Picture:
    """Switch a small lamp in the corner every 4 s."""
    if time_s // 4 % 2:
        room[:24, -24:] = 255
    return room


def _daylight(room: Picture, time_s: float) -> Picture:
    """Vary the brightness with a period of 30 s, as passing clouds do."""
    return room + 40 * math.sin(2 * math.pi * time_s / 30)


def _slides(_room_seen: Picture, time_s: float) -> Picture:
    """Cut to another still picture every 4 s."""
    return _room(seed=int(time_s // 4) + 1)


def _pan(room: Picture, time_s: float) -> Picture:
    return np.roll(room, round(time_s * 25), axis=1)


def _cuts(_room_seen: Picture, time_s: float) -> Picture:
    """Cut every second, to moving pictures."""
    return _pan(_room(seed=int(time_s) + 1), time_s)


SCENES = (
    Scene("empty room", is_static=True, draw=_empty),
    Scene("room and visitors", is_static=True, draw=_visit),
    Scene("room and a lamp", is_static=True, draw=_lamp),
    Scene("room in changing light", is_static=True, draw=_daylight),
    Scene("slides", is_static=True, draw=_slides),
    Scene("person always walking", is_static=False, draw=_walk),
    Scene("panning camera", is_static=False, draw=_pan),
    Scene("a cut every second", is_static=False, draw=_cuts),
)
