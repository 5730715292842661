"""A sheet of what several samplers show of one video: a row of pictures for each sampler."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from reelabel.sampling.uniform import pick_evenly
from reelabel.text import pluralize

if TYPE_CHECKING:
    import numpy.typing as npt

    from reelabel.sampled_frames import SampledFrames

_LONG_SIDE_PX = 148
_MAX_PICTURES = 64
_SHEET_PX = 1280
_MARGIN_PX, _GAP_PX, _LINE_PX = 16, 8, 20
_MIN_CELL_PX = 92  # fits the caption of a film of hours
_TITLE_PX, _HEADING_PX, _TEXT_PX = 20, 17, 13
_INK, _SOFT, _ACCENT, _FAULT = "#1a1a1a", "#5f5f5f", "#b3261e", "#b3261e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One frame that a sampler shows.

    Attributes:
        image: Thumbnail.
        time_s: Presentation time in seconds.
        times: How often it is shown.
    """

    image: Image.Image
    time_s: float
    times: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetRow:
    """What one sampler shows.

    Attributes:
        title: The sampler.
        facts: What it shows, and what that costs.
        pictures: Its distinct frames, in the order shown.
        fault: Why it shows none; empty if it shows some.
    """

    title: str
    facts: str = ""
    pictures: tuple[Picture, ...] = ()
    fault: str = ""


def picture_frames(sampled: SampledFrames) -> tuple[tuple[Picture, ...], str]:
    """Make thumbnails of the frames that a sampler shows, each once.

    Returns:
        At most 64 pictures, evenly spaced among the frames, and which part of them that is; empty if all.
    """
    times = Counter(sampled.picks.tolist())  # in the order shown
    rows = list(times)
    note = ""
    if len(rows) > _MAX_PICTURES:
        note = f"{_MAX_PICTURES} of {pluralize(len(rows), 'picture')} drawn, evenly spaced"
        rows = [rows[at] for at in pick_evenly(len(rows), _MAX_PICTURES)]
    pictures = (
        Picture(
            image=_scale(sampled.images[row], sampled.pixel_aspect),
            time_s=float(sampled.time_s[row]),
            times=times[row],
        )
        for row in rows
    )
    return tuple(pictures), note


def _scale(pixels: npt.NDArray[np.uint8], pixel_aspect: float) -> Image.Image:
    """Return a frame as video players show it, with one long side for all samplers, whatever their `max_pixels`."""
    height, width = pixels.shape[0], pixels.shape[1] * (pixel_aspect or 1.0)
    scale = _LONG_SIDE_PX / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    return Image.fromarray(np.ascontiguousarray(pixels)).resize(size, Image.Resampling.LANCZOS)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells of one size for the pictures of all rows."""

    columns: int
    width_px: int
    height_px: int

    @classmethod
    def of(cls, rows: list[SheetRow]) -> _Grid:
        sizes = [picture.image.size for row in rows for picture in row.pictures] or [(0, 0)]
        width_px = max(_MIN_CELL_PX, *(width for width, _ in sizes)) + _GAP_PX
        height_px = max(height for _, height in sizes) + _LINE_PX + _GAP_PX
        return cls(columns=(_SHEET_PX - 2 * _MARGIN_PX + _GAP_PX) // width_px, width_px=width_px, height_px=height_px)

    def rows_px(self, row: SheetRow) -> int:
        return -(-len(row.pictures) // self.columns) * self.height_px


def draw_sheet(title: str, facts: str, rows: list[SheetRow]) -> Image.Image:
    """Draw a sheet: the video, shortened from its start if it is too long, its facts, and a row for each sampler."""
    grid, texts = _Grid.of(rows), [_wrap(row.fault or row.facts) for row in rows]
    heights = [
        (len(lines) + 1) * _LINE_PX + grid.rows_px(row) + 2 * _MARGIN_PX for row, lines in zip(rows, texts, strict=True)
    ]
    sheet = Image.new("RGB", (_SHEET_PX, 2 * _MARGIN_PX + 3 * _LINE_PX + sum(heights)), "white")
    draw, top = ImageDraw.Draw(sheet), _MARGIN_PX
    draw.text((_MARGIN_PX, top), _shorten(title), fill=_INK, font=_font(_TITLE_PX))
    draw.text((_MARGIN_PX, top + 26), facts, fill=_SOFT, font=_font(_TEXT_PX))
    top += 3 * _LINE_PX
    for row, lines, height in zip(rows, texts, heights, strict=True):
        draw.line((_MARGIN_PX, top - 8, _SHEET_PX - _MARGIN_PX, top - 8), fill="#d0d0d0")
        draw.text((_MARGIN_PX, top), row.title, fill=_INK, font=_font(_HEADING_PX))
        for number, line in enumerate(lines):
            place = _MARGIN_PX, top + 24 + number * _LINE_PX
            draw.text(place, line, fill=_FAULT if row.fault else _SOFT, font=_font(_TEXT_PX))
        _draw_pictures(sheet, draw, row, grid, top + (len(lines) + 1) * _LINE_PX + 8)
        top += height
    return sheet


def _draw_pictures(sheet: Image.Image, draw: ImageDraw.ImageDraw, row: SheetRow, grid: _Grid, top: int) -> None:
    for number, picture in enumerate(row.pictures):
        x = _MARGIN_PX + number % grid.columns * grid.width_px
        y = top + number // grid.columns * grid.height_px
        sheet.paste(picture.image, (x, y))
        caption_y = y + grid.height_px - _LINE_PX - _GAP_PX + 2
        draw.text((x, caption_y), f"{picture.time_s:.3f} s", fill=_SOFT, font=_font(_TEXT_PX))
        if picture.times > 1:
            _draw_mark(draw, f"{picture.times:,}x", right=x + picture.image.width, top=y)


def _draw_mark(draw: ImageDraw.ImageDraw, text: str, *, right: int, top: int) -> None:
    """Mark a repeated picture at its upper right corner."""
    width = round(_font(_HEADING_PX).getlength(text)) + 10
    draw.rectangle((right - width, top, right - 1, top + 24), fill=_ACCENT)
    draw.text((right - width + 5, top + 2), text, fill="white", font=_font(_HEADING_PX))


def _font(size_px: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return the font that comes with Pillow."""
    return ImageFont.load_default(size_px)


def _shorten(title: str) -> str:
    """Leave out the start of a title that is too long; the end names the file."""
    font, room_px = _font(_TITLE_PX), _SHEET_PX - 2 * _MARGIN_PX
    for cut in range(max(0, len(title) - _SHEET_PX), len(title)):
        shown = f"…{title[cut:]}" if cut else title
        if font.getlength(shown) <= room_px:
            return shown
    return ""


def _wrap(sentence: str) -> list[str]:
    return textwrap.wrap(sentence, 2 * (_SHEET_PX - 2 * _MARGIN_PX) // _TEXT_PX, max_lines=6, placeholder=" …")
