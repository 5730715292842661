"""Training data of the tiny SigLIP: single pictures of moving shapes, and which captions are true of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tasks.demo.actors import SHAPES, SIDE_PX
from tasks.demo.shapes import COLOURS, draw_shape, render_frames
from tools.tiny_model.scenes import SCENE_QUESTIONS, STILL_TASKS, draw_scene

if TYPE_CHECKING:
    import numpy.typing as npt

    from tasks.demo.actors import Actor

WHITE = "white"
ALL_COLOURS = (*COLOURS, WHITE)
ATTRIBUTES = (*ALL_COLOURS, *SHAPES)

_OF_BOTH = (
    "a {colour} {shape}",
    "{colour} {shape}",
    "the {colour} {shape}",
    "a {shape} that is {colour}",
    "a picture of a {colour} {shape}",
    "a {colour} {shape} moves",
)
_OF_COLOUR = ("something {colour}", "{colour}", "a {colour} shape")
_OF_SHAPE = ("a {shape}", "{shape}", "a picture of a {shape}")
_OF_NOTHING = ("an empty picture", "nothing", "no shape")
_SCENE_SHARE = 0.25  # of the pictures; the others show one shape
_SCENE_TASKS = tuple(task for task in SCENE_QUESTIONS if task not in STILL_TASKS)
_FRAMES_PER_SCENE = 2
_COLOUR_VARIATION = 60


@dataclass(frozen=True, slots=True)
class Concept:
    """What a caption claims: a colour, a shape, both, or neither for an empty picture.

    Attributes:
        colour: One of ALL_COLOURS; empty if the caption names none.
        shape: One of SHAPES; empty if the caption names none.
    """

    colour: str = ""
    shape: str = ""

    def captions(self) -> tuple[str, ...]:
        if self.colour and self.shape:
            templates: tuple[str, ...] = _OF_BOTH
        elif self.colour:
            templates = _OF_COLOUR
        else:
            templates = _OF_SHAPE if self.shape else _OF_NOTHING
        return tuple(template.format(colour=self.colour, shape=self.shape) for template in templates)

    def is_true_of(self, seen: frozenset[Concept]) -> bool:
        """Return whether it holds for a picture in which these colours and shapes are seen."""
        if not self.colour and not self.shape:
            return not seen
        return any(self.colour in {"", one.colour} and self.shape in {"", one.shape} for one in seen)


CONCEPTS = (
    Concept(),
    *(Concept(colour=colour) for colour in ALL_COLOURS),
    *(Concept(shape=shape) for shape in SHAPES),
    *(Concept(colour, shape) for colour in ALL_COLOURS for shape in SHAPES),
)
ALL_CAPTIONS = tuple(caption for concept in CONCEPTS for caption in concept.captions())


@dataclass(frozen=True, kw_only=True, eq=False)
class Pictures:
    """A batch of pictures and captions.

    Attributes:
        images: Pixels; shape (B, SIDE_PX, SIDE_PX, 3), uint8.
        captions: Distinct texts; C of them.
        is_true: Whether a caption is true of a picture; shape (B, C).
        shows: Which of ATTRIBUTES a picture shows; shape (B, len(ATTRIBUTES)).
    """

    images: npt.NDArray[np.uint8] = field(repr=False)
    captions: tuple[str, ...] = field(repr=False)
    is_true: npt.NDArray[np.bool_] = field(repr=False)
    shows: npt.NDArray[np.bool_] = field(repr=False)


def draw_pictures(rng: np.random.Generator, size: int) -> Pictures:
    """Draw pictures, each with a caption that is true of it; captions are shared by all that they are true of."""
    images: list[npt.NDArray[np.uint8]] = []
    seen: list[frozenset[Concept]] = []
    while len(images) < size:
        drawn = _draw_scene_pictures(rng) if rng.uniform() < _SCENE_SHARE else _draw_crossing_picture(rng)
        images += drawn[0]
        seen += drawn[1]
    images, seen = images[:size], seen[:size]
    asked: dict[str, Concept] = {}
    for shown in seen:
        true = [concept for concept in CONCEPTS if concept.is_true_of(shown)]
        concept = true[rng.integers(len(true))]
        asked[str(rng.choice(concept.captions()))] = concept
    return Pictures(
        images=np.stack(images),
        captions=tuple(asked),
        is_true=np.array([[concept.is_true_of(shown) for concept in asked.values()] for shown in seen]),
        shows=np.array([_attributes(shown) for shown in seen]),
    )


def _draw_crossing_picture(rng: np.random.Generator) -> tuple[list[npt.NDArray[np.uint8]], list[frozenset[Concept]]]:
    shape = draw_shape(rng)
    pixels = render_frames(shape, rng.uniform(0, 1, 1), rng)
    return [pixels[0]], [frozenset({Concept(shape.colour, shape.shape)})]


def _draw_scene_pictures(rng: np.random.Generator) -> tuple[list[npt.NDArray[np.uint8]], list[frozenset[Concept]]]:
    task = str(rng.choice(_SCENE_TASKS))
    scene = draw_scene(task, str(rng.choice(SCENE_QUESTIONS[task][1])), rng)
    fractions = rng.uniform(0, 1, _FRAMES_PER_SCENE)
    seen = [
        frozenset(Concept(_colour_of(actor), actor.shape) for actor in scene.actors if _is_seen(actor, fraction))
        for fraction in fractions.tolist()
    ]
    return list(scene.render(fractions, rng)), seen


def _is_seen(actor: Actor, fraction: float) -> bool:
    """Return whether a shape is in the picture, with its centre inside."""
    if not actor.enters <= fraction < actor.leaves:
        return False
    progress = min(1.0, (fraction - actor.enters) / (actor.arrives - actor.enters))
    centre = [first + (last - first) * progress for first, last in zip(actor.start, actor.end, strict=True)]
    return all(0 <= along <= SIDE_PX for along in centre)


def _colour_of(actor: Actor) -> str:
    """Name a shape's colour, of which `draw_colour` made a variation."""
    away = {name: max(abs(a - b) for a, b in zip(rgb, actor.rgb, strict=True)) for name, rgb in COLOURS.items()}
    nearest = min(away, key=lambda name: away[name])
    return nearest if away[nearest] < _COLOUR_VARIATION else WHITE


def _attributes(seen: frozenset[Concept]) -> list[bool]:
    shown = {value for one in seen for value in (one.colour, one.shape)}
    return [name in shown for name in ATTRIBUTES]
