"""Clips of one moving shape, with known answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tasks.demo.actors import SHAPES, SIDE_PX, Actor, paint

if TYPE_CHECKING:
    import numpy.typing as npt

COLOURS = {"red": (220, 30, 30), "green": (30, 190, 50), "blue": (40, 70, 230), "yellow": (235, 220, 40)}
DIRECTIONS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
_VARIATION = 25
OPPOSITES = {"left": "right", "right": "left", "up": "down", "down": "up"}

QUESTIONS = {
    "colour": ("Which colour is the shape?", tuple(COLOURS)),
    "direction": ("Which direction does it move?", tuple(DIRECTIONS)),
    "shape": ("What shape is it?", SHAPES),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MovingShape:
    """One shape that crosses the frame at constant speed."""

    colour: str
    direction: str
    shape: str
    rgb: tuple[int, int, int]
    background: int
    radius_px: float  # half of the shape's width and height
    start_px: float  # initial coordinate of the centre along the direction of motion
    travel_px: float  # distance covered over the whole clip
    across_px: float  # coordinate of the centre perpendicular to the motion

    def actor(self) -> Actor:
        step_x, step_y = DIRECTIONS[self.direction]
        along = np.array([self.start_px, self.start_px + self.travel_px])
        first, last = (along if step_x + step_y > 0 else SIDE_PX - along).tolist()
        start, end = (first, self.across_px), (last, self.across_px)
        if step_y:
            start, end = start[::-1], end[::-1]
        return Actor(shape=self.shape, rgb=self.rgb, radius_px=self.radius_px, start=start, end=end)

    def truth(self, task: str) -> str:
        """Return the answer to one of QUESTIONS."""
        return {"colour": self.colour, "direction": self.direction, "shape": self.shape}[task]


def draw_colour(name: str, rng: np.random.Generator) -> tuple[int, int, int]:
    """Return a random variation of one of COLOURS."""
    red, green, blue = np.clip(np.array(COLOURS[name]) + rng.integers(-_VARIATION, _VARIATION + 1, 3), 0, 255).tolist()
    return red, green, blue


def draw_shape(rng: np.random.Generator) -> MovingShape:
    """Draw a random shape, with its appearance and path."""
    colour = str(rng.choice(list(COLOURS)))
    radius = rng.uniform(10, 15)
    travel = rng.uniform(14, 24)
    return MovingShape(
        colour=colour,
        direction=str(rng.choice(list(DIRECTIONS))),
        shape=str(rng.choice(SHAPES)),
        rgb=draw_colour(colour, rng),
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
    """Paint a shape at some instants of its clip; see `paint`."""
    return paint([shape.actor()], fractions, rng, background=shape.background)
