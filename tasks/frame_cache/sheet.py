"""Draws sheets of pictures: a title, and sections of captioned frames."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from reelabel.sampling.uniform import pick_evenly
from reelabel.text import escape_controls, pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from reelabel.result import Frames

_BOX_PX = (148, 148)
_MAX_PICTURES = 64
_SHEET_PX = 1280
_MARGIN_PX, _GAP_PX, _LINE_PX = 16, 8, 20
_MIN_CELL_PX = 92  # fits the caption of a film of hours
_TITLE_PX, _HEADING_PX, _TEXT_PX = 20, 17, 13
_MAX_LINES = 6
_INK, _SOFT, _ACCENT, _EMPTY = "#1a1a1a", "#5f5f5f", "#b3261e", "#e8e8e8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One frame with its caption.

    Attributes:
        image: None if there is an error.
        times: How often the model sees the frame; more than once is marked.
        error: Why there is no image.
    """

    image: Image.Image | None = None
    lines: tuple[str, ...] = ()
    times: int = 1
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Pictures below a heading.

    Attributes:
        facts: Text below the heading.
        error: Why there are no pictures.
    """

    title: str = ""
    facts: str = ""
    pictures: tuple[Picture, ...] = ()
    error: str = ""


def picture_frames(sampled: Frames) -> tuple[tuple[Picture, ...], str]:
    """Return thumbnails of the sampled frames, each once.

    They are at most 64, evenly spaced; if these are not all, the second value says so.
    """
    times = Counter(sampled.shown.tolist())  # in the order shown
    rows = list(times)
    note = ""
    if len(rows) > _MAX_PICTURES:
        note = f"{_MAX_PICTURES} of {pluralize(len(rows), 'picture')} drawn, evenly spaced"
        rows = [rows[at] for at in pick_evenly(len(rows), _MAX_PICTURES)]
    pictures = (
        Picture(
            image=scale(sampled.unique[row], pixel_aspect=sampled.selection.pixel_aspect),
            lines=(f"{float(sampled.selection.time_s[row]):.3f} s",),
            times=times[row],
        )
        for row in rows
    )
    return tuple(pictures), note


def scale(
    pixels: npt.NDArray[np.uint8], *, pixel_aspect: float = 1.0, box_px: tuple[int, int] = _BOX_PX
) -> Image.Image:
    """Scale an RGB frame, shape (H, W, 3), with its pixel aspect to the largest size that fits a box."""
    height, width = pixels.shape[0], pixels.shape[1] * (pixel_aspect or 1.0)
    factor = min(box_px[0] / width, box_px[1] / height)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    return Image.fromarray(np.ascontiguousarray(pixels)).resize(size, Image.Resampling.LANCZOS)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells of one size for the pictures of all sections."""

    width_px: int
    picture_px: int
    lines: int

    @classmethod
    def of(cls, sections: Sequence[Section], cell_px: int) -> _Grid:
        pictures = [picture for section in sections for picture in section.pictures]
        sizes = [picture.image.size if picture.image else (cell_px, cell_px * 5 // 8) for picture in pictures]
        return cls(
            width_px=max((cell_px, *(width for width, _ in sizes))),
            picture_px=max((height for _, height in sizes), default=0),
            lines=max((len(picture.lines) for picture in pictures), default=0),
        )

    @property
    def height_px(self) -> int:
        return self.picture_px + self.lines * _LINE_PX + _GAP_PX

    @property
    def columns(self) -> int:
        return max(1, (_SHEET_PX - 2 * _MARGIN_PX + _GAP_PX) // (self.width_px + _GAP_PX))

    def rows_px(self, section: Section) -> int:
        return -(-len(section.pictures) // self.columns) * self.height_px


def draw_sheet(title: str, facts: str, sections: Sequence[Section], *, cell_px: int = _MIN_CELL_PX) -> Image.Image:
    """Draw a sheet with `facts` below its title; `cell_px` is the least width of a cell."""
    grid, texts = _Grid.of(sections, cell_px), [_wrap(each.error or each.facts, _SHEET_PX) for each in sections]
    heights = [
        (len(lines) + 1) * _LINE_PX + grid.rows_px(section) + 2 * _MARGIN_PX
        for section, lines in zip(sections, texts, strict=True)
    ]
    width = max(_SHEET_PX, 2 * _MARGIN_PX + grid.width_px)
    sheet = Image.new("RGB", (width, 2 * _MARGIN_PX + 3 * _LINE_PX + sum(heights)), "white")
    draw, top = ImageDraw.Draw(sheet), _MARGIN_PX
    room_px = width - 2 * _MARGIN_PX
    draw.text((_MARGIN_PX, top), _fit(title, room_px, _TITLE_PX), fill=_INK, font=_font(_TITLE_PX))
    draw.text((_MARGIN_PX, top + 26), _fit(facts, room_px, _TEXT_PX), fill=_SOFT, font=_font(_TEXT_PX))
    top += 3 * _LINE_PX
    for section, lines, height in zip(sections, texts, heights, strict=True):
        draw.line((_MARGIN_PX, top - 8, width - _MARGIN_PX, top - 8), fill="#d0d0d0")
        heading = _fit(section.title, room_px, _HEADING_PX)
        draw.text((_MARGIN_PX, top), heading, fill=_INK, font=_font(_HEADING_PX))
        for number, line in enumerate(lines):
            place = _MARGIN_PX, top + 24 + number * _LINE_PX
            draw.text(place, line, fill=_ACCENT if section.error else _SOFT, font=_font(_TEXT_PX))
        for number, picture in enumerate(section.pictures):
            left = _MARGIN_PX + number % grid.columns * (grid.width_px + _GAP_PX)
            above = top + (len(lines) + 1) * _LINE_PX + 8 + number // grid.columns * grid.height_px
            _draw_picture(sheet, draw, picture, grid, left, above)
        top += height
    return sheet


def _draw_picture(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, picture: Picture, grid: _Grid, left: int, top: int
) -> None:
    if picture.image:
        sheet.paste(picture.image, (left, top))
        if picture.times > 1:
            _draw_mark(draw, f"{picture.times:,}x", right=left + picture.image.width, top=top)
    else:
        draw.rectangle((left, top, left + grid.width_px - 1, top + grid.picture_px - 1), fill=_EMPTY)
        for number, line in enumerate(_wrap(picture.error, grid.width_px)):
            draw.text((left + 8, top + 8 + number * _LINE_PX), line, fill=_ACCENT, font=_font(_TEXT_PX))
    for number, line in enumerate(picture.lines):
        text = _fit(line, grid.width_px, _TEXT_PX)
        place = left, top + grid.picture_px + 2 + number * _LINE_PX
        draw.text(place, text, fill=_SOFT, font=_font(_TEXT_PX))


def _draw_mark(draw: ImageDraw.ImageDraw, text: str, *, right: int, top: int) -> None:
    width = round(_font(_HEADING_PX).getlength(text)) + 10
    draw.rectangle((right - width, top, right - 1, top + 24), fill=_ACCENT)
    draw.text((right - width + 5, top + 2), text, fill="white", font=_font(_HEADING_PX))


def _font(size_px: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size_px)


def _fit(text: str, room_px: int, size_px: int) -> str:
    """Cut the beginning of a text that is too long: the end of a URI names the file."""
    font, text = _font(size_px), escape_controls(text)
    for cut in range(max(0, len(text) - room_px), len(text)):
        shown = f"…{text[cut:]}" if cut else text
        if font.getlength(shown) <= room_px:
            return shown
    return ""


def _wrap(text: str, room_px: int) -> list[str]:
    columns = 2 * (room_px - 2 * _MARGIN_PX) // _TEXT_PX
    lines = textwrap.wrap(escape_controls(text), columns, max_lines=_MAX_LINES, placeholder=" …")
    return [_fit(line, room_px, _TEXT_PX) for line in lines]
