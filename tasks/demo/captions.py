"""What the demo's pictures are captioned with: the bank of its shapes."""

from __future__ import annotations

from tasks.demo.actors import SHAPES
from tasks.demo.shapes import COLOURS

# Every colour with every shape: the tags of the demo's clips.
SHAPE_BANK = tuple(caption for colour in COLOURS for caption in (f"a {colour} {shape}" for shape in SHAPES))
