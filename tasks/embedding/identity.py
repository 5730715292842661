"""Where the demo's image-text model is."""

from pathlib import Path

TINY_TOWERS = Path(__file__).parents[1] / "demo" / "reelabel-tiny-siglip"
