"""The frame size shown to the model."""

from __future__ import annotations

import math


def fit_size(width_px: int, height_px: int, *, max_pixels: int, multiple_px: int) -> tuple[int, int]:
    """Round a frame's sides to multiples of the model's patch, within a pixel budget.

    The rule is `smart_resize` of transformers' Qwen2-VL video processor, without its lower limit, so that Qwen's
    processor does not resize again.

    Returns:
        Width and height in pixels, each at least `multiple_px`.
    """
    width = max(multiple_px, round(width_px / multiple_px) * multiple_px)
    height = max(multiple_px, round(height_px / multiple_px) * multiple_px)
    if width * height > max_pixels:
        shrink = math.sqrt(width_px * height_px / max_pixels)
        width = max(multiple_px, math.floor(width_px / shrink / multiple_px) * multiple_px)
        height = max(multiple_px, math.floor(height_px / shrink / multiple_px) * multiple_px)
    return width, height
