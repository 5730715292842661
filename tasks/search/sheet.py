"""A contact sheet of moments: the best first, each with its score, its time and its job."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from reelabel.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

_COLUMNS, _CELL_PX, _GAP_PX, _MARGIN_PX = 4, 300, 16, 20
_PICTURE_PX = 220
_FAULT_COLUMNS, _FAULT_LINES = 40, 11
_TITLE_PX, _TEXT_PX, _LINE_PX = 20, 13, 18
_INK, _SOFT, _FAULT, _EMPTY = "#1a1a1a", "#5f5f5f", "#b3261e", "#e8e8e8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One moment on the sheet.

    Attributes:
        lines: What is written under its picture.
        image: The frame, shape (H, W, 3), uint8; None if it cannot be shown.
        fault: Why it cannot.
    """

    lines: tuple[str, ...]
    image: npt.NDArray[np.uint8] | None = None
    fault: str = ""


def draw_moments(title: str, cells: Sequence[Cell]) -> Image.Image:
    """Draw a sheet.

    Args:
        title: What was searched for.
        cells: The moments, best first.
    """
    lines = max((len(cell.lines) for cell in cells), default=0)
    height_px = _PICTURE_PX + lines * _LINE_PX + _GAP_PX
    columns = max(1, min(_COLUMNS, len(cells)))
    rows = -(-len(cells) // columns)
    size = (2 * _MARGIN_PX + columns * (_CELL_PX + _GAP_PX) - _GAP_PX, 3 * _MARGIN_PX + _TITLE_PX + rows * height_px)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    draw.text(
        (_MARGIN_PX, _MARGIN_PX), _fit(title, size[0] - 2 * _MARGIN_PX, _TITLE_PX), fill=_INK, font=_font(_TITLE_PX)
    )
    for number, cell in enumerate(cells):
        left = _MARGIN_PX + number % columns * (_CELL_PX + _GAP_PX)
        top = 2 * _MARGIN_PX + _TITLE_PX + number // columns * height_px
        _draw_picture(sheet, draw, cell, left, top)
        for line, text in enumerate(cell.lines):
            at = (left, top + _PICTURE_PX + 4 + line * _LINE_PX)
            draw.text(at, _fit(text, _CELL_PX, _TEXT_PX), fill=_SOFT if line else _INK, font=_font(_TEXT_PX))
    return sheet


def _draw_picture(sheet: Image.Image, draw: ImageDraw.ImageDraw, cell: Cell, left: int, top: int) -> None:
    if cell.image is None:
        draw.rectangle((left, top, left + _CELL_PX - 1, top + _PICTURE_PX - 1), fill=_EMPTY)
        for line, text in enumerate(
            textwrap.wrap(cell.fault, _FAULT_COLUMNS, max_lines=_FAULT_LINES, placeholder=" …")
        ):
            place = (left + 8, top + 8 + line * _LINE_PX)
            draw.text(place, _fit(text, _CELL_PX - 16, _TEXT_PX), fill=_FAULT, font=_font(_TEXT_PX))
        return
    image = Image.fromarray(np.ascontiguousarray(cell.image))
    scale = min(_CELL_PX / image.width, _PICTURE_PX / image.height)
    shown = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))
    sheet.paste(shown, (left, top))


def _font(size_px: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the font that comes with Pillow."""
    return ImageFont.load_default(size_px)


def _fit(text: str, room_px: int, size_px: int) -> str:
    """Cut a text that is too long; what follows would run into the next picture."""
    font, text = _font(size_px), printable(text)
    if font.getlength(text[:1000]) <= room_px:
        return text
    for end in range(min(len(text), room_px), 0, -1):
        shown = f"{text[:end]}…"
        if font.getlength(shown) <= room_px:
            return shown
    return ""
