"""Generates clips with known scene changes; deterministic for a version of the encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import av
import numpy as np
from PIL import Image

from benchmarks.media.clips import made_once
from benchmarks.scenes.truth import Transition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

_Picture: TypeAlias = "npt.NDArray[Any]"  # RGB, uint8 or, where blended, float64
Kind: TypeAlias = Literal["cuts", "motion", "slides", "dark", "flashes", "gradual", "slow", "black"]
Encode: TypeAlias = Literal["fixed", "scenecut", "default"]
FPS = 25
_OCTAVES = (3, 6, 12, 24, 48)
_SHOTS = 8
_SHOT_FRAMES = (20, 90)
_DISSOLVE, _FADE, _SLOW_DISSOLVE, _LONG_FADE = 12, 20, 40, 50  # frames
_SLIDE_FRAMES = 75
_DARK = 0.12
_SEEDS = range(5)
HARD: tuple[Kind, ...] = ("cuts", "motion", "slides", "dark", "flashes")
GRADUAL: tuple[Kind, ...] = ("gradual", "slow", "black")
_MARGIN = 0.5  # of a landscape beyond the picture, into which it pans
_WIDTH_PX, _HEIGHT_PX = 320, 180
_OPTIONS: dict[str, dict[str, str]] = {
    "fixed": {"g": "50", "keyint_min": "50", "sc_threshold": "0"},
    "scenecut": {"g": "250", "keyint_min": "25", "sc_threshold": "40"},
    "default": {},
}


class Shot(NamedTuple):
    """One shot.

    Attributes:
        frames: Its frames.
        pan: In pictures' widths a frame.
        flash: Position of a flash of two frames; None for none.
        ending: What follows it.
        blend: Frames that a dissolve or a fade takes.
    """

    frames: int
    pan: float
    flash: int | None = None
    ending: Literal["cut", "dissolve", "fade"] = "cut"
    blend: int = 0


@dataclass(frozen=True, slots=True)
class SceneClip:
    """A clip.

    Attributes:
        kind: Cuts between calm shots; cuts, flashes and fast motion; stills of equal length; cuts at an eighth of the
            brightness; flashes in calm shots; dissolves and fades; dissolves of 1.6 s; or long fades through black.
        encode: Keyframes at a fixed distance, or where the encoder sees cuts; or as the encoder does by itself.
        seed: Determines the shots, with the kind.
    """

    kind: Kind
    encode: Encode
    seed: int

    @property
    def name(self) -> str:
        """Name of the clip: `cuts-fixed-0`."""
        return f"{self.kind}-{self.encode}-{self.seed}"

    def make(self, folder: Path) -> tuple[Path, tuple[Transition, ...]]:
        """Return the clip, which is encoded unless it exists, and its changes."""
        shots = plan_shots(self.kind, self.seed)
        path = made_once(folder / "scenes" / f"{self.name}.mp4", lambda path: self._encode(path, shots))
        return path, known_transitions(shots)

    def _encode(self, path: Path, shots: list[Shot]) -> None:
        with av.open(str(path), "w") as container:
            options = {"preset": "veryfast", "crf": "26", **_OPTIONS[self.encode]}
            stream = container.add_stream("libx264", rate=FPS, options=options)
            stream.width, stream.height, stream.pix_fmt = _WIDTH_PX, _HEIGHT_PX, "yuv420p"
            brightness = _DARK if self.kind == "dark" else 1.0
            for drawn in draw(shots, _WIDTH_PX, _HEIGHT_PX, seed=100 * self.seed):
                picture = (drawn * brightness).astype(np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode())


def made_set() -> list[SceneClip]:
    """Return forty clips: five of each kind, by different encodings."""
    encodes: tuple[Encode, ...] = ("default", "fixed", "scenecut")
    return [SceneClip(kind, encodes[seed % 3], seed) for kind in (*HARD, *GRADUAL) for seed in _SEEDS]


def plan_shots(kind: Kind, seed: int) -> list[Shot]:
    """Choose the shots of a clip; the same for the same kind and seed."""
    rng = np.random.default_rng([seed, *kind.encode()])
    plan = _plan_varied_shot if kind in {"cuts", "motion", "gradual"} else _plan_calm_shot
    return [plan(kind, number, rng) for number in range(_SHOTS)]


def _plan_varied_shot(kind: Kind, number: int, rng: np.random.Generator) -> Shot:
    frames = int(rng.integers(*_SHOT_FRAMES)) + (2 * _FADE if kind == "gradual" else 0)
    is_fast = kind == "motion" and number % 2 == 0
    pan = float(rng.uniform(0.01, 0.03) if is_fast else rng.choice([0, 0.001, 0.002]))
    if kind == "gradual":
        if number % 2:
            return Shot(frames, pan, ending="fade", blend=_FADE)
        return Shot(frames, pan, ending="dissolve", blend=_DISSOLVE)
    return Shot(frames, pan, flash=frames // 2 if kind == "motion" and number % 2 else None)


def _plan_calm_shot(kind: Kind, _number: int, rng: np.random.Generator) -> Shot:
    frames, pan = int(rng.integers(40, 120)), float(rng.choice([0, 0.001, 0.002]))
    match kind:
        case "slides":
            return Shot(_SLIDE_FRAMES, 0.0)
        case "slow":
            return Shot(frames + 100, pan, ending="dissolve", blend=_SLOW_DISSOLVE)
        case "black":
            return Shot(frames + 100, pan, ending="fade", blend=_LONG_FADE)
    return Shot(frames, pan, flash=frames // 2 if kind == "flashes" else None)


def known_transitions(shots: list[Shot]) -> tuple[Transition, ...]:
    """Return the changes between shots, in milliseconds."""
    found, start = [], 0
    for shot in shots[:-1]:
        start += shot.frames
        length = shot.blend + 1
        first = start - 1 - (length - 1) // 2
        found.append(Transition(first * 1000 // FPS, (first + length) * 1000 // FPS))
    return tuple(found)


def draw(shots: list[Shot], width_px: int, height_px: int, *, seed: int = 0) -> Iterator[npt.NDArray[np.uint8]]:
    """Draw the frames of all shots, of landscapes from a seed on; RGB of shape (height_px, width_px, 3), uint8."""
    earlier, here = None, _Landscape(seed, width_px, height_px)
    for number, shot in enumerate(shots):
        following = _Landscape(seed + number + 1, width_px, height_px)
        for frame in range(shot.frames):
            picture: _Picture = here.picture(frame * shot.pan)
            if number + 1 < len(shots) and shot.ending != "cut":
                picture = _leave(picture, following, shot, shot.frames - frame)
            if earlier and shots[number - 1].ending != "cut":
                picture = _enter(picture, earlier, shots[number - 1], frame)
            if shot.flash is not None and frame in {shot.flash, shot.flash + 1}:
                picture = picture // 8 + 223
            yield picture.astype(np.uint8)
        earlier, here = here, following


def _leave(picture: _Picture, following: _Landscape, shot: Shot, left: int) -> _Picture:
    """Blend the last frames of a shot with the next one, or with black."""
    half = shot.blend // 2
    if left > half:
        return picture
    done = (half - left + 1) / (2 * half + 1)
    return picture * (1 - 2 * done) if shot.ending == "fade" else picture * (1 - done) + following.picture(0) * done


def _enter(picture: _Picture, before: _Landscape, shot: Shot, frame: int) -> _Picture:
    """Blend the first frames of a shot with the one before it, or with black."""
    half = shot.blend // 2
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
