"""Benchmark layouts of `reelabel manifest import`, and their readers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from infra.errors import ConfigurationError
from infra.uri import absolute_uri
from tasks.manifest.layouts.mapped import read_mapped
from tasks.manifest.layouts.mvbench import read_mvbench
from tasks.manifest.layouts.nextqa import read_nextqa
from tasks.manifest.layouts.source import BenchmarkFiles
from tasks.manifest.layouts.videomme import read_videomme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

LAYOUTS: dict[str, Callable[[BenchmarkFiles], pl.DataFrame]] = {
    "nextqa": read_nextqa,
    "mvbench": read_mvbench,
    "videomme": read_videomme,
    "csv": read_mapped,
}


def read_layout(
    layout: str, path: str, *, videos: str | None, video_map: str | None, columns: Sequence[str]
) -> pl.DataFrame:
    """Read a benchmark's files as a manifest's columns.

    Args:
        layout: One of `LAYOUTS`.
        path: A file or folder.
        videos: Folder or prefix of the videos; None is the folder of the file.
        video_map: JSON file with the videos' paths below that.
        columns: For `csv`, as `NAME=COLUMN`.

    Raises:
        ConfigurationError: Unknown layout, or a malformed column.
        ManifestError: The files do not have this layout.
    """
    if layout not in LAYOUTS:
        raise ConfigurationError(f"Unknown layout {layout}; use one of {', '.join(LAYOUTS)}.")
    wrong = [text for text in columns if "=" not in text]
    if wrong:
        raise ConfigurationError(f"--column {wrong[0]} is malformed; use NAME=COLUMN, such as prompt=question.")
    folder = videos or str(Path(path) if Path(path).is_dir() else Path(path).parent)
    source = BenchmarkFiles(
        path=Path(path),
        videos=absolute_uri(folder),
        video_map=Path(video_map) if video_map else None,
        columns=dict(text.split("=", 1) for text in columns),
    )
    return LAYOUTS[layout](source)
