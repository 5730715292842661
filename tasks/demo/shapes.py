"""Clips of one moving shape, with their truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

SIDE_PX = 56

COLOURS = {"red": (220, 30, 30), "green": (30, 190, 50), "blue": (40, 70, 230), "yellow": (235, 220, 40)}
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
SHAPES = ("square", "circle", "triangle", "cross")
OPPOSITES = {"left": "right", "right": "left", "up": "down", "down": "up"}

QUESTIONS = {
    "colour": ("Which colour is the shape?", tuple(COLOURS)),
    "direction": ("Which direction does it move?", tuple(DIRECTIONS)),
    "shape": ("What shape is it?", SHAPES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingShape:
    """One shape that crosses the picture at constant speed.

    Attributes:
        radius_px: Half of the shape's extent.
        start_px: Centre along the motion at the first instant, in the direction of motion.
        travel_px: Distance covered over the whole clip.
        across_px: Centre across the motion.
    """

    colour: str
    direction: str
    shape: str
    rgb: tuple[int, int, int]
    background: int
    radius_px: float
    start_px: float
    travel_px: float
    across_px: float

    def truth(self, task: str) -> str:
        """Answer one of QUESTIONS."""
        return {"colour": self.colour, "direction": self.direction, "shape": self.shape}[task]


def draw_shape(rng: np.random.Generator) -> MovingShape:
    """Choose a shape, its looks and its path at random."""
    colour = str(rng.choice(list(COLOURS)))
    radius = rng.uniform(10, 15)
    travel = rng.uniform(14, 24)
    return MovingShape(
        colour=colour,
        direction=str(rng.choice(list(DIRECTIONS))),
        shape=str(rng.choice(SHAPES)),
        rgb=tuple(int(v) for v in np.clip(np.array(COLOURS[colour]) + rng.integers(-25, 26, 3), 0, 255)),  # type: ignore[arg-type]
        background=int(rng.integers(0, 200)),
        radius_px=radius,
        start_px=rng.uniform(radius, max(radius + 0.1, SIDE_PX - radius - travel)),
        travel_px=travel,
        across_px=rng.uniform(radius, SIDE_PX - radius),
    )


def render_frames(
    shape: MovingShape,
    fractions: npt.NDArray[np.float64],
    rng: np.random.Generator,
) -> npt.NDArray[np.uint8]:
    """Paint a shape at instants of its clip, with a little noise.

    Args:
        shape: What moves.
        fractions: Instants as shares of the clip, in [0, 1]; shape (T,).
        rng: Source of the noise.

    Returns:
        RGB pixels; shape (T, SIDE_PX, SIDE_PX, 3), uint8.
    """
    along = shape.start_px + shape.travel_px * fractions
    step_x, step_y = DIRECTIONS[shape.direction]
    along = along if step_x + step_y > 0 else SIDE_PX - along
    across = np.full_like(along, shape.across_px)
    centre_x, centre_y = (along, across) if step_x else (across, along)
    grid = np.arange(SIDE_PX) + 0.5
    dx = grid[None, None, :] - centre_x[:, None, None]
    dy = grid[None, :, None] - centre_y[:, None, None]
    # Half a pixel of blend at the edge keeps slow motion visible between frames.
    cover = np.clip(0.5 - _distance(shape.shape, dx, dy, shape.radius_px), 0, 1)[..., None]
    pixels = shape.background * (1 - cover) + np.array(shape.rgb) * cover
    noise = rng.integers(-8, 9, pixels.shape, dtype=np.int8)
    return np.clip(pixels + noise, 0, 255).astype(np.uint8)


def _distance(
    shape: str,
    dx: npt.NDArray[np.float64],
    dy: npt.NDArray[np.float64],
    radius: float,
) -> npt.NDArray[np.float64]:
    """Signed distance to a shape's edge in pixels, negative inside."""
    wide, tall = np.abs(dx), np.abs(dy)
    distance: npt.NDArray[np.float64]
    if shape == "circle":
        distance = np.hypot(dx, dy) - radius
    elif shape == "square":
        distance = np.maximum(wide, tall) - radius
    elif shape == "triangle":
        distance = np.maximum((2 * wide - dy - radius) / np.sqrt(5), dy - radius)
    else:
        upright = np.maximum(wide - 0.35 * radius, tall - radius)
        level = np.maximum(tall - 0.35 * radius, wide - radius)
        distance = np.minimum(upright, level)
    return distance
