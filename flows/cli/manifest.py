"""`reelabel manifest check` and `reelabel manifest import`."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel, ConfigDict

from flows.cli.console import print_line, require_parent_folder, write_output
from flows.cli.context import running_store
from flows.cli.options import example, with_options
from flows.cli.survey import survey
from infra.errors import ManifestError
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import absolute_uri, redact_uri, scheme_of
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.frame_cache.pool import video_store
from tasks.manifest.cells import parse_list
from tasks.manifest.importers.benchmarks import read_mvbench, read_nextqa, read_streamingbench, read_videomme
from tasks.manifest.importers.csv_rows import import_csv, read_mapped
from tasks.manifest.importers.imported import QuestionFiles
from tasks.manifest.importers.lerobot import read_lerobot
from tasks.manifest.importers.openai_batch import import_openai_batch
from tasks.manifest.importers.parquet_videos import read_parquet_videos
from tasks.manifest.importers.reviewed import read_fiftyone, read_label_studio
from tasks.manifest.importers.videos import VideoFiles, read_folder
from tasks.manifest.importers.webdataset import read_webdataset
from tasks.manifest.rejects import REJECTED_FILE, rejected_csv
from tasks.manifest.table import open_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks.manifest.importers.imported import ImportedRows

commands = typer.Typer(epilog="Example: reelabel manifest check jobs.parquet")

LAYOUTS: dict[str, Callable[[QuestionFiles], ImportedRows]] = {
    "nextqa": read_nextqa,
    "mvbench": read_mvbench,
    "videomme": read_videomme,
    "streamingbench": read_streamingbench,
    "csv": read_mapped,
}
REVIEW_LAYOUTS: dict[str, Callable[[Path, str, ObjectStore], ImportedRows]] = {
    "label-studio": read_label_studio,
    "fiftyone": read_fiftyone,
}
VIDEO_LAYOUTS: dict[str, Callable[[VideoFiles], ImportedRows]] = {
    "webdataset": read_webdataset,
    "parquet": read_parquet_videos,
    "lerobot": read_lerobot,
    "folder": read_folder,
}
# The options of each layout.
_LAYOUT_OPTIONS: dict[str | None, frozenset[str]] = {
    None: frozenset({"column"}),
    **dict.fromkeys(LAYOUTS, frozenset({"videos", "video_map"})),
    "csv": frozenset({"videos", "video_map", "column"}),
    **dict.fromkeys(REVIEW_LAYOUTS, frozenset({"manifest"})),
    **dict.fromkeys(VIDEO_LAYOUTS, frozenset({"prompt", "choices", "column"})),
}


class ImportOptions(BaseModel):
    """How to read a source."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    layout: str | None = None
    """nextqa, mvbench, videomme, streamingbench, csv for choices in several columns; label-studio or fiftyone for
    reviewers' answers; webdataset, parquet, lerobot or folder for videos."""
    videos: str | None = None
    """With --layout: folder or s3:// prefix of the videos; defaults to the source's folder."""
    video_map: str | None = None
    """With --layout: JSON file that maps video names to paths."""
    manifest: str | None = None
    """With --layout label-studio or fiftyone: the manifest whose labels were reviewed."""
    column: tuple[str, ...] = ()
    prompt: str | None = None
    """For videos: the question about each."""
    choices: str | None = None
    """For videos: its choices, separated by bars, such as 'yes|no', or as a JSON list."""

    @property
    def by_name(self) -> dict[str, str]:
        wrong = [text for text in self.column if "=" not in text]
        if wrong:
            raise ConfigurationError(f"--column {wrong[0]} is malformed; use NAME=COLUMN, such as prompt=question.")
        return dict(text.split("=", 1) for text in self.column)


def read_source(
    path: str, options: ImportOptions, videos: ObjectStore | None = None, files: ObjectStore | None = None
) -> ImportedRows:
    """Read a source; `videos` is the store of videos, and `files` that of manifests."""
    layout, columns = options.layout, options.by_name
    if layout not in _LAYOUT_OPTIONS:
        raise ConfigurationError(f"Unknown layout {layout}; use one of {', '.join(filter(None, _LAYOUT_OPTIONS))}.")
    for name in sorted(options.model_fields_set - {"layout", *_LAYOUT_OPTIONS[layout]}):
        if getattr(options, name):
            takers = ", ".join(each for each, taken in _LAYOUT_OPTIONS.items() if each and name in taken)
            raise ConfigurationError(f"--{name.replace('_', '-')} is for --layout {takers}; leave it out.")
    if layout not in VIDEO_LAYOUTS and scheme_of(path) is not None:
        raise ConfigurationError(
            f"{redact_uri(path)} is not a local path; copy it to this machine, and import the copy."
        )
    if layout is None:
        return _read_by_name(path, columns)
    if layout in REVIEW_LAYOUTS:
        if not options.manifest:
            raise ConfigurationError(f"--layout {layout} needs --manifest: the manifest whose labels were reviewed.")
        return REVIEW_LAYOUTS[layout](Path(path), absolute_uri(options.manifest), files or ObjectStore())
    if layout in VIDEO_LAYOUTS:
        source = VideoFiles(
            uri=absolute_uri(path),
            objects=videos or ObjectStore(),
            prompt=options.prompt,
            choices=_parse_choices(options.choices) if options.choices else (),
            columns=columns,
        )
        return VIDEO_LAYOUTS[layout](source)
    folder = options.videos or str(Path(path) if Path(path).is_dir() else Path(path).parent)
    questions = QuestionFiles(
        path=Path(path),
        videos=absolute_uri(folder),
        video_map=Path(options.video_map) if options.video_map else None,
        columns=columns,
    )
    return LAYOUTS[layout](questions)


def _parse_choices(text: str) -> list[str]:
    try:
        return parse_list(text, "--choices")
    except ValueError as error:
        raise ConfigurationError(f"{error}.") from None


def _read_by_name(path: str, columns: dict[str, str]) -> ImportedRows:
    if not path.endswith((".jsonl", ".ndjson")):
        return import_csv(Path(path), columns)
    if columns:
        raise ConfigurationError(f"--column names columns of CSV files, and {path} has none; leave it out.")
    return import_openai_batch(Path(path))


def _require_no_pipe(path: Path) -> None:
    """Refuse a source that can be read only once, such as a process substitution: it is read several times."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ManifestError(f"{path} is a pipe or a device; save its content as a file, and import that.")


def _require_target(target: str, source: str) -> None:
    """Refuse to replace a file that is not a manifest, such as the source if the arguments are swapped."""
    if not target.endswith(".parquet"):
        raise ConfigurationError(f"The target {target} must end in .parquet; write the source first, then the target.")
    if absolute_uri(target) == absolute_uri(source):
        raise ConfigurationError(f"{target} is both source and target; name another target.")
    if scheme_of(target) is None:
        require_parent_folder(target)


def import_manifest(source: str, target: str, options: ImportOptions, *, keep_going: bool = False) -> int:
    """Convert a file, a benchmark's folder, or videos to a manifest; return the exit code, 1 if rows were rejected.

    With `keep_going`, valid rows are written to the target, and the others to `rejected.csv` next to it, replacing that
    of an earlier import. Otherwise nothing is written if any row is invalid.
    """
    _require_target(target, source)
    rejected = (Path(target).absolute().parent if scheme_of(target) is None else Path.cwd()) / REJECTED_FILE
    if keep_going and absolute_uri(source) == str(rejected):
        raise ConfigurationError(f"{rejected} is the source, and rejected rows would replace it; rename it.")
    if scheme_of(source) is None:
        _require_no_pipe(Path(source))
    with running_store(source, target, *filter(None, [options.manifest])) as settings:
        files = ObjectStore(settings.store, settings.web)
        found = read_source(source, options, video_store(settings), files)
        for note in found.notes:
            print_line(note)
        if keep_going:
            rejected.unlink(missing_ok=True)
        frame, rejects = found.divided() if keep_going else (found.valid(), None)
        parquet = BytesIO()
        frame.write_parquet(parquet)
        files.replace(target, parquet.getvalue())
    print_line(f"Wrote {pluralize(len(frame), 'job')} to {target}.")
    if rejects is None or rejects.is_empty():
        return 0
    write_output(rejected, rejected_csv(rejects))
    print_line(f"Rejected {pluralize(len(rejects), 'row')}: {rejected} has the reasons.")
    return 1


@commands.command("check")
@example("reelabel manifest check jobs.parquet")
def manifest_check(manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob.")]) -> None:
    """Validate a manifest, and report every error."""
    with running_store(manifest) as settings:
        objects = ObjectStore(settings.store, settings.web)
        with open_jobs(manifest, objects) as jobs:
            counted = f"{pluralize(len(jobs), 'job')} on {pluralize(jobs.count_videos(), 'video')}"
    print_line(f"{manifest} is valid: {counted}.")


commands.command("survey")(survey)


@commands.command("import")
@example("reelabel manifest import jobs.csv jobs.parquet")
@with_options("options", ImportOptions)
def manifest_import(
    source: Annotated[
        str,
        typer.Argument(
            help="CSV file, OpenAI batch JSONL file, a benchmark's file or folder, or a location of videos."
        ),
    ],
    target: Annotated[str, typer.Argument(help="Parquet file to write.")],
    *,
    options: ImportOptions,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="For CSV and for fields of videos: NAME=COLUMN, such as prompt=question, or with --layout csv "
            "choices=a+b+c; repeatable."
        ),
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Write the valid rows, list the others in rejected.csv next to the target, and exit 1."
        ),
    ] = False,
) -> None:
    """Convert CSV, OpenAI batch JSONL, a benchmark's files or videos to a manifest, and validate it."""
    options = options.model_copy(update={"column": tuple(column or ())})
    raise typer.Exit(import_manifest(source, target, options, keep_going=keep_going))
