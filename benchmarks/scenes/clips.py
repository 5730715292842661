"""Clips whose changes of scene are known, because they are made here; the same for the same version of the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import av
import numpy as np
from PIL import Image

from benchmarks.scenes.truth import Transition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

_Picture: TypeAlias = "npt.NDArray[Any]"  # RGB, uint8 or, where blended, float64
Kind: TypeAlias = Literal["cuts", "motion", "gradual"]
Encode: TypeAlias = Literal["fixed", "scenecut"]
FPS = 25
_OCTAVES = (3, 6, 12, 24, 48)
_SHOTS = 16
_SHOT_FRAMES = (20, 90)
_DISSOLVE, _FADE = 12, 20  # frames
_MARGIN = 0.5  # of a landscape beyond the picture, into which it pans
_SIZES: dict[str, tuple[int, int]] = {"small": (320, 180), "large": (1280, 720)}
_OPTIONS: dict[str, dict[str, str]] = {
    "fixed": {"g": "50", "keyint_min": "50", "sc_threshold": "0"},
    "scenecut": {"g": "250", "keyint_min": "25", "sc_threshold": "40"},
}


class Shot(NamedTuple):
    """One shot: its frames, its pan in pictures' widths a frame, the position of a flash, and what follows it."""

    frames: int
    pan: float
    flash: int | None
    ending: Literal["cut", "dissolve", "fade"]


@dataclass(frozen=True, slots=True)
class SceneClip:
    """A clip.

    Attributes:
        kind: Cuts between calm shots; cuts, flashes and fast motion; or dissolves and fades.
        encode: Keyframes at a fixed distance, or where the encoder sees cuts.
        size: A key of `_SIZES`.
    """

    kind: Kind
    encode: Encode
    size: str

    @property
    def name(self) -> str:
        """Name of the clip: `cuts-fixed-small`."""
        return f"{self.kind}-{self.encode}-{self.size}"

    def make(self, folder: Path) -> tuple[Path, tuple[Transition, ...]]:
        """Return the clip, which is encoded unless it exists, and its changes."""
        shots = plan_shots(self.kind)
        path = folder / "scenes" / f"{self.name}.mp4"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(".part.mp4")
            self._encode(unfinished, shots)
            unfinished.replace(path)
        return path, known_transitions(shots)

    def _encode(self, path: Path, shots: list[Shot]) -> None:
        with av.open(str(path), "w") as container:
            options = {"preset": "veryfast", "crf": "26", **_OPTIONS[self.encode]}
            stream = container.add_stream("libx264", rate=FPS, options=options)
            stream.width, stream.height = _SIZES[self.size]
            stream.pix_fmt = "yuv420p"
            for picture in draw(shots, *_SIZES[self.size]):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())


def scene_clips() -> list[SceneClip]:
    """Return all clips."""
    kinds: tuple[Kind, ...] = ("cuts", "motion", "gradual")
    encodes: tuple[Encode, ...] = ("fixed", "scenecut")
    return [SceneClip(kind, encode, size) for kind in kinds for encode in encodes for size in _SIZES]


def plan_shots(kind: Kind) -> list[Shot]:
    """Choose the shots of a clip; the same for the same kind."""
    rng = np.random.default_rng(sum(kind.encode()))
    shots = []
    for number in range(_SHOTS):
        frames = int(rng.integers(*_SHOT_FRAMES)) + (2 * _FADE if kind == "gradual" else 0)
        is_fast = kind == "motion" and number % 2 == 0
        pan = float(rng.uniform(0.01, 0.03) if is_fast else rng.choice([0, 0.001, 0.002]))
        flash = frames // 2 if kind == "motion" and number % 2 else None
        ending: Literal["cut", "dissolve", "fade"] = "cut"
        if kind == "gradual":
            ending = "fade" if number % 2 else "dissolve"
        shots.append(Shot(frames, pan, flash, ending))
    return shots


def known_transitions(shots: list[Shot]) -> tuple[Transition, ...]:
    """Return the changes between shots, in milliseconds."""
    found, start = [], 0
    for shot in shots[:-1]:
        start += shot.frames
        length = {"cut": 1, "dissolve": _DISSOLVE + 1, "fade": _FADE + 1}[shot.ending]
        first = start - 1 - (length - 1) // 2
        found.append(Transition(first * 1000 // FPS, (first + length) * 1000 // FPS))
    return tuple(found)


def draw(shots: list[Shot], width_px: int, height_px: int) -> Iterator[npt.NDArray[np.uint8]]:
    """Draw the frames of all shots; RGB of shape (height_px, width_px, 3), uint8."""
    earlier, here = None, _Landscape(0, width_px, height_px)
    for number, shot in enumerate(shots):
        following = _Landscape(number + 1, width_px, height_px)
        for frame in range(shot.frames):
            picture: _Picture = here.picture(frame * shot.pan)
            if number + 1 < len(shots) and shot.ending != "cut":
                picture = _leave(picture, following, shot.ending, shot.frames - frame)
            if earlier and shots[number - 1].ending != "cut":
                picture = _enter(picture, earlier, shots[number - 1], frame)
            if shot.flash is not None and frame in {shot.flash, shot.flash + 1}:
                picture = picture // 8 + 223
            yield picture.astype(np.uint8)
        earlier, here = here, following


def _leave(picture: _Picture, following: _Landscape, ending: str, left: int) -> _Picture:
    """Blend the last frames of a shot with the next one, or with black."""
    half = (_DISSOLVE if ending == "dissolve" else _FADE) // 2
    if left > half:
        return picture
    done = (half - left + 1) / (2 * half + 1)
    return picture * (1 - 2 * done) if ending == "fade" else picture * (1 - done) + following.picture(0) * done


def _enter(picture: _Picture, before: _Landscape, shot: Shot, frame: int) -> _Picture:
    """Blend the first frames of a shot with the one before it, or with black."""
    half = (_DISSOLVE if shot.ending == "dissolve" else _FADE) // 2
    if frame >= half:
        return picture
    done = (half + 1 + frame) / (2 * half + 1)
    old = before.picture((shot.frames - 1) * shot.pan)
    return picture * (2 * done - 1) if shot.ending == "fade" else old * (1 - done) + picture * done


class _Landscape:
    """Octave noise of one colour cast, wider than the picture."""

    def __init__(self, seed: int, width_px: int, height_px: int) -> None:
        rng = np.random.default_rng([seed, 24])
        size = (int(width_px * (1 + _MARGIN)), height_px)
        canvas = np.zeros((size[1], size[0], 3))
        for cells in _OCTAVES:
            noise = Image.fromarray(rng.integers(0, 256, (cells, 2 * cells, 3), np.uint8))
            canvas += (np.asarray(noise.resize(size, Image.Resampling.BICUBIC), float) - 128) * 4 / cells
        cast = rng.uniform(0.3, 1.0, 3) * rng.uniform(0.5, 1.0)
        self._canvas: npt.NDArray[np.uint8] = (
            np.clip(canvas / np.abs(canvas).max() * 127 + 128, 0, 255) * cast
        ).astype(np.uint8)
        self._width_px = width_px

    def picture(self, panned: float) -> npt.NDArray[np.uint8]:
        reach = self._canvas.shape[1] - self._width_px
        left = int(panned * self._width_px) % (2 * reach)
        left = min(left, 2 * reach - left)
        return self._canvas[:, left : left + self._width_px]
