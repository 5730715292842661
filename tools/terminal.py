"""Draws a terminal session as SVG from the output of its commands: `python -m tools.terminal docs/terminal.svg`.

It generates a folder of the demo's clips, asks the demo's model about them, and shows the labels. Services are started
in a temporary folder and stopped at the end; this takes about a minute.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tasks.demo.clips import make_demo
from tasks.model.identity import TINY_MODEL

_COLUMNS = 98
_CLIPS = 6
_QUESTION = "Which colour is the shape?"
_CHOICES = "red|green|blue|yellow"
_SESSION = (f'classify clips --prompt "{_QUESTION}" --choices "{_CHOICES}"', "results last")
# Rows of the summary that a new reader needs; what follows the tables is left out.
_LEFT_OUT = re.compile(r"^│ (?!model |jobs  |answered|videos|tokens|audit)[a-z]+[: ]|│ {10}|^(?![ │┃┌└├┏┡])")
# Colours, although the output is not a terminal, but no animation.
_TERMINAL = {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "0", "COLUMNS": str(_COLUMNS)}
# A page that embeds the file as an image loads no external fonts.
_FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*(?=\S)", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.terminal", description=__doc__)
    parser.add_argument("file", type=Path, help="the SVG to write")
    file = parser.parse_args().file.absolute()
    console = Console(record=True, width=_COLUMNS, file=Path(os.devnull).open("w"), force_terminal=True)  # noqa: SIM115
    with TemporaryDirectory(prefix="reelabel-terminal-") as name:
        folder = Path(name)
        (folder / "clips").mkdir()
        make_demo(folder / "clips", seed=0, clips=_CLIPS)
        (folder / "clips" / "manifest.parquet").unlink()
        for line in _SESSION:
            console.print(Text.assemble(("$ ", "bold green"), f"reelabel {line}"))
            console.print(_output(line, folder))
    svg = console.export_svg(title="reelabel", code_format=_FORMAT, unique_id="reelabel")
    file.write_text(re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE), encoding="utf-8")
    print(f"Wrote {file}.")  # noqa: T201


def _output(line: str, folder: Path) -> Text:
    environment = os.environ | _TERMINAL | {"REELABEL_HOME": ".reelabel", "REELABEL_MODEL_NAME": str(TINY_MODEL)}
    command = [sys.executable, "-m", "flows.cli", *shlex.split(line)]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, check=True)  # noqa: S603
    lines = [Text.from_ansi(text) for text in done.stdout.decode().splitlines()]
    return Text("\n").join(text for text in lines if not _LEFT_OUT.search(text.plain))


if __name__ == "__main__":
    main()
