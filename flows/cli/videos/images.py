"""Pictures in terminals that can show them."""

from __future__ import annotations

import base64
import os
import sys
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from PIL import Image

_CHUNK_CHARACTERS = 4096  # the most that kitty's protocol takes at once
_ITERM = ("iTerm.app", "WezTerm")


def show_image(image: Image.Image) -> bool:
    """Show a picture on standard output; return False if that is no terminal known to show pictures."""
    if not sys.stdout.isatty():
        return False
    written = BytesIO()
    image.save(written, "PNG")
    codes = image_codes(written.getvalue(), os.environ)
    sys.stdout.write(codes)
    sys.stdout.flush()
    return bool(codes)


def image_codes(png: bytes, environment: Mapping[str, str]) -> str:
    """Return the escape codes that show a PNG file in a terminal; empty if it is not known to show pictures."""
    terminal, program = environment.get("TERM", ""), environment.get("TERM_PROGRAM", "")
    data = base64.b64encode(png).decode()
    if terminal.startswith(("tmux", "screen")):
        return ""
    if terminal in {"xterm-kitty", "xterm-ghostty"}:
        parts = [data[start : start + _CHUNK_CHARACTERS] for start in range(0, len(data), _CHUNK_CHARACTERS)]
        heads = ["a=T,f=100,"] + [""] * (len(parts) - 1)
        more = [1] * (len(parts) - 1) + [0]
        return (
            "".join(f"\033_G{head}m={m};{part}\033\\" for head, m, part in zip(heads, more, parts, strict=True)) + "\n"
        )
    if program in _ITERM:
        return f"\033]1337;File=inline=1;size={len(png)}:{data}\a\n"
    return ""
