"""Shapes that enter, move and leave a clip, and their rendering."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

SIDE_PX = 56
SHAPES = ("square", "circle", "triangle", "cross")
_NOISE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """One shape in a clip; instants are fractions of the clip's duration, from 0 to 1."""

    shape: str  # one of SHAPES
    rgb: tuple[int, int, int]  # its colour
    radius_px: float  # half of its width and height
    start: tuple[float, float]  # its centre (x, y) in pixels when it enters
    end: tuple[float, float]  # its centre once it has arrived
    enters: float = 0.0  # instant at which it appears
    arrives: float = 1.0  # instant from which it no longer moves
    leaves: float = math.inf  # instant at which it disappears

    def cover(self, fractions: npt.NDArray[np.float64]) -> npt.NDArray[np.floating[Any]]:
        """Return the share of each pixel that it covers at some instants, 0 to 1; shape (T, SIDE_PX, SIDE_PX)."""
        progress = np.clip((fractions - self.enters) / (self.arrives - self.enters), 0, 1).astype(np.float32)
        centre_x, centre_y = (
            first + (last - first) * progress for first, last in zip(self.start, self.end, strict=True)
        )
        grid = np.arange(SIDE_PX, dtype=np.float32) + np.float32(0.5)
        dx = grid[None, None, :] - centre_x[:, None, None]
        dy = grid[None, :, None] - centre_y[:, None, None]
        is_visible = (fractions >= self.enters) & (fractions < self.leaves)
        # Half a pixel of blend at the edge keeps slow motion visible between frames.
        covered: npt.NDArray[np.floating[Any]] = np.clip(0.5 - _distance(self.shape, dx, dy, self.radius_px), 0, 1)
        return covered * is_visible[:, None, None]


def paint(
    actors: Sequence[Actor],
    fractions: npt.NDArray[np.float64],
    rng: np.random.Generator,
    *,
    background: int,
) -> npt.NDArray[np.uint8]:
    """Paint a clip at some instants, fractions of it in [0, 1] of shape (T,), with a little noise.

    Later actors are drawn in front, and the background is a grey level from 0 to 255; RGB, (T, SIDE_PX, SIDE_PX, 3).
    """
    # Channels first, since an innermost loop over only three values would be slow.
    planes = np.full((3, len(fractions), SIDE_PX, SIDE_PX), background, np.float32)
    for actor in actors:
        rgb = np.array(actor.rgb, np.float32)[:, None, None, None]
        planes += (rgb - planes) * actor.cover(fractions)
    planes += rng.integers(-_NOISE, _NOISE + 1, planes.shape, dtype=np.int8)
    return np.moveaxis(np.clip(planes, 0, 255, out=planes).astype(np.uint8), 0, -1).copy()


def _distance(
    shape: str,
    dx: npt.NDArray[np.float32],
    dy: npt.NDArray[np.float32],
    radius: float,
) -> npt.NDArray[np.floating[Any]]:
    """Return the signed distance to a shape's edge in pixels, negative inside."""
    wide, tall = np.abs(dx), np.abs(dy)
    distance: npt.NDArray[np.floating[Any]]
    if shape == "circle":
        distance = np.hypot(dx, dy) - radius
    elif shape == "square":
        distance = np.maximum(wide, tall) - radius
    elif shape == "triangle":
        distance = np.maximum((2 * wide - dy - radius) / math.sqrt(5), dy - radius)
    else:
        upright = np.maximum(wide - 0.35 * radius, tall - radius)
        level = np.maximum(tall - 0.35 * radius, wide - radius)
        distance = np.minimum(upright, level)
    return distance
