"""`reelabel manifest`."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.cli.console import print_line, require_parent_folder
from flows.cli.context import running_services
from infra.embedded import ServiceName
from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri, scheme_of
from reelabel.sources.object_store import ObjectStore
from reelabel.wording import pluralize
from tasks.manifest.check import check_manifest
from tasks.manifest.import_csv import import_csv, unknown_columns
from tasks.manifest.import_openai import import_openai_batch
from tasks.manifest.layouts.mapped import read_mapped
from tasks.manifest.layouts.mvbench import read_mvbench
from tasks.manifest.layouts.nextqa import read_nextqa
from tasks.manifest.layouts.source import BenchmarkFiles
from tasks.manifest.layouts.videomme import read_videomme
from tasks.manifest.table import open_jobs

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


def check(manifest: str) -> None:
    """Validate a manifest.

    Raises:
        ManifestError: The manifest is invalid; the message lists every error.
    """
    with running_services(*([ServiceName.S3] if manifest.startswith("s3://") else [])) as settings:
        objects = ObjectStore(settings.store, settings.web)
        with open_jobs(manifest, objects) as jobs:
            said = f"{pluralize(len(jobs), 'job')} on {pluralize(jobs.count_videos(), 'video')}"
    print_line(f"{manifest} is valid: {said}.")


def import_manifest(source: str, target: str, *, layout: str | None, **named: Any) -> None:  # noqa: ANN401
    """Convert a file to a manifest and validate it; write nothing if it is invalid.

    Args:
        source: The file, or a benchmark's folder.
        target: Parquet file to write.
        layout: A benchmark's, as `read_layout` knows it; None goes by the file's suffix.
        named: Options of the layout.

    Raises:
        ManifestError: The source cannot be read, or makes an invalid manifest.
        ConfigurationError: The target's folder does not exist, or the layout is unknown.
    """
    if scheme_of(target) is None:
        require_parent_folder(target)
    if layout is None and any(named.values()):
        raise ConfigurationError("--videos, --video-map and --column require --layout.")
    frame = read_layout(layout, source, **named) if layout else _read_by_name(source)
    faults = check_manifest(frame)
    if faults:
        raise ManifestError(f"{source} is not a valid manifest:", faults)
    with running_services(*([ServiceName.S3] if target.startswith("s3://") else [])) as settings:
        parquet = BytesIO()
        frame.write_parquet(parquet)
        ObjectStore(settings.store, settings.web).replace(target, parquet.getvalue())
    print_line(f"Wrote {pluralize(len(frame), 'job')} to {target}.")


def _read_by_name(source: str) -> pl.DataFrame:
    if source.endswith((".jsonl", ".ndjson")):
        return import_openai_batch(Path(source))
    frame = import_csv(Path(source))
    dropped = unknown_columns(Path(source))
    if dropped:
        print_line(f"Dropped columns that a manifest does not have: {', '.join(dropped)}.")
    return frame
