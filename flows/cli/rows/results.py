"""`reelabel results`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl
import typer

from flows.cli.console import OUT, cell, make_table, print_line, print_notice, text_sink
from flows.cli.context import find_run, open_database
from flows.cli.options import Raw, Run, example
from flows.cli.rows.formats import check_format, print_rows
from flows.run.result import cost_lines
from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sources.object_info import expand_home
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.domain import DescribeSpec
from tasks.evaluation.calibration import calibrate_probabilities
from tasks.frame_cache.pool import frame_cache
from tasks.report.jobs import Sources
from tasks.report.review import Uncertain, fiftyone_samples, label_studio_task, load_uncertain
from tasks.results.evaluation.calibrations import read_calibration
from tasks.results.read import (
    count_outcomes,
    has_words,
    read_chunks,
    read_description_chunks,
    read_descriptions,
    read_failures,
    read_outcomes,
    read_results,
)
from tasks.results.runs import describes, read_any_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from rich.table import Table
    from sqlalchemy import Engine, RowMapping

    from infra.settings import Settings

LABEL_STUDIO, FIFTYONE = "label-studio", "fiftyone"
_REVIEWED, _MAX_REVIEWED = 100, 500
_THUMBNAIL_PX = 480
_SHOWN_ROWS = 20
_SHOWN_CHUNKS = 200
_SHOWN_TAGS = 3
_SHOWN_CHARACTERS = 200  # of an answer in words
_IN_FULL = "more; use --format csv for all rows and columns."
_COLUMNS = ("job_id", "label", "margin", "confidence", "answer")


@example("reelabel results last --format csv > labels.csv")
def results(
    run: Run = "last",
    form: Annotated[
        str,
        typer.Option("--format", help="table, json, csv or parquet; for reviewers, label-studio or fiftyone."),
    ] = "table",
    *,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of rows; for reviewers, those with the lowest margins. Default: 20 in tables (200 "
            "chunks), 100 for reviewers, otherwise all.",
        ),
    ] = None,
    folder: Annotated[str | None, typer.Option(help="With fiftyone: the new folder to write.")] = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Add calibrated probabilities; see `reelabel calibrate`.")
    ] = False,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Print the chunks of cut jobs, or of described videos, instead of jobs.")
    ] = False,
    raw: Raw = False,
) -> None:
    """Print the labels, answers in words or descriptions, and the failures of a run."""
    if (form == FIFTYONE) != (folder is not None):
        raise ConfigurationError(f"--format {FIFTYONE} and --folder go together; give both or neither.")
    if form in {LABEL_STUDIO, FIFTYONE}:
        if calibrated or chunks or raw:
            raise ConfigurationError(f"--calibrated, --chunks and --raw cannot be combined with --format {form}.")
        limit = limit or _REVIEWED
        if limit > _MAX_REVIEWED:
            raise ConfigurationError(f"--format {form} writes at most {_MAX_REVIEWED} labels; give a lower --limit.")
        _write_review(run, limit=limit, folder=folder)
        return
    check_format(form, raw=raw)
    with open_database() as (_, engine):
        row = find_run(engine, run)
        scope = Scope.of(row)
        describing = describes(engine, scope.spec_id)
        if calibrated and describing:
            raise ConfigurationError("--calibrated is for labels; this run describes videos.")
        if calibrated and chunks:
            raise ConfigurationError(
                "--calibrated and --chunks cannot be combined: a spec is calibrated on the answers of jobs."
            )
        calibrate = _calibrator(_temperature(engine, scope.spec_id)) if calibrated else _unchanged
        if form != "table":
            rows = _rows(engine, scope, describing=describing, chunks=chunks, limit=limit)
            print_rows(map(calibrate, rows), form=form, raw=raw)
        elif chunks:
            _print_chunks(engine, scope, describing=describing, limit=limit or _SHOWN_CHUNKS)
        elif describing:
            found = read_descriptions(engine, scope, limit=limit or _SHOWN_ROWS)
            _print_outcomes(engine, row, _descriptions(found), "description", failures=limit or _SHOWN_ROWS)
        else:
            found = calibrate(read_results(engine, scope, limit=limit or _SHOWN_ROWS))
            noun = "answer" if has_words(engine, scope) else "label"
            _print_outcomes(engine, row, _labels(found), noun, failures=limit or _SHOWN_ROWS)


def _write_review(run: str, *, limit: int, folder: str | None) -> None:
    """Write the labels with the lowest margins for reviewers: as tasks of Label Studio, or to a folder for FiftyOne."""
    with open_database(store=True) as (settings, engine):
        found = _load_uncertain(engine, settings, find_run(engine, run), limit)
        if folder is None:
            _print_tasks(found)
        else:
            _write_samples(found, expand_home(folder))


def _load_uncertain(engine: Engine, settings: Settings, run: RowMapping, limit: int) -> Uncertain:
    """Load the labels with the lowest margins, with their frames."""
    spec = read_any_spec(engine, run["spec_id"])
    if isinstance(spec, DescribeSpec):
        raise ConfigurationError("This run describes videos; only labels can be reviewed.")
    if settings.store.uri is None:
        raise ConfigurationError("A review needs the store of the run's frames; set REELABEL_STORE_URI.")
    sources = Sources(
        run["manifest_uri"], spec, ObjectStore(settings.store, settings.web), frame_cache(settings), _THUMBNAIL_PX
    )
    with database_errors(), engine.connect() as connection:
        found = load_uncertain(connection, Scope.of(run), sources, limit=limit)
    if found.changed:
        print_notice(f"Left out {pluralize(found.changed, 'label')}: the manifest no longer has the question.")
    return found


def _print_tasks(found: Uncertain) -> None:
    """Write Label Studio tasks to standard output, as a JSON array."""
    text_sink().write(json.dumps([label_studio_task(job) for job in found.jobs]).encode() + b"\n")
    sys.stdout.flush()  # an error at exit, such as of a full disk, would be lost
    if found.bare:
        print_notice(f"{pluralize(found.bare, 'task')} without frames, which are no longer in the cache.")


def _write_samples(found: Uncertain, folder: Path) -> None:
    """Write the frames to a new folder, as FiftyOne samples; the list of samples is written last."""
    data, samples = folder / "data", list[dict[str, Any]]()
    try:
        data.mkdir(parents=True)
        for place, job in enumerate(found.jobs):
            for number, (sample, image) in enumerate(fiftyone_samples(job)):
                file = data / f"{place:03}-{number:03}.webp"
                file.write_bytes(image)
                samples.append({"filepath": str(file.relative_to(folder)), **sample})
        (folder / "samples.json").write_text(json.dumps({"samples": samples}), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"Cannot write samples to {folder}: {error.strerror or error}.") from error
    print_line(f"Wrote {pluralize(len(samples), 'frame')} of {pluralize(len(found.jobs) - found.bare, 'label')}.")
    if found.bare:
        print_notice(f"Left out {pluralize(found.bare, 'label')}, whose frames are no longer in the cache.")


def _rows(engine: Engine, scope: Scope, *, describing: bool, chunks: bool, limit: int | None) -> Iterable[pl.DataFrame]:
    if chunks:
        return (read_description_chunks if describing else read_chunks)(engine, scope, limit=limit)
    return read_outcomes(engine, scope, describes=describing, limit=limit)


def _labels(found: pl.DataFrame) -> Table:
    shown = [name for name in _COLUMNS if name in found.columns]
    words = pl.coalesce("text", "data").str.slice(0, _SHOWN_CHARACTERS)
    return make_table(shown, found.with_columns(label=pl.coalesce("label", words)).select(shown).iter_rows())


def _descriptions(found: pl.DataFrame) -> Table:
    return make_table(
        ("job_id", "seconds", "tags", "caption", "scenes"),
        (
            (row["job_id"], f"{row['duration_s']:.1f}", _tags(row), _caption(row), len(json.loads(row["scenes"])))
            for row in found.iter_rows(named=True)
        ),
    )


def _tags(row: dict[str, Any]) -> str:
    return ", ".join(f"{tag['text']} {tag['score']:.3f}" for tag in json.loads(row["tags"])[:_SHOWN_TAGS])


def _caption(row: dict[str, Any]) -> str:
    return "" if row["caption"] is None else f"{row['caption']} {row['caption_score']:.3f}"


def _print_outcomes(engine: Engine, run: RowMapping, table: Table, noun: str, *, failures: int) -> None:
    """Print a table of outcomes, some failures, and the cost of the run."""
    scope = Scope.of(run)
    done, failed = count_outcomes(engine, scope)
    table.title = cell(f"{run['dataset']}: {pluralize(done, noun)}, {pluralize(failed, 'failure')}")
    OUT.print(table)
    if done > table.row_count:
        print_line(f"... and {done - table.row_count:,} {_IN_FULL}")
    for row in read_failures(engine, scope, limit=failures).iter_rows(named=True):
        print_line((row["code"], "red"), f" {row['job_id']}: {row['message']}")
    for name, value in cost_lines(run):
        print_line(f"{name}: {value}")
    if run["state"] not in {"done", "running"} and run["message"]:
        print_line(f"This run is {run['state']}: {run['message']}")


def _print_chunks(engine: Engine, scope: Scope, *, describing: bool, limit: int) -> None:
    read = read_description_chunks if describing else read_chunks
    found = pl.concat(read(engine, scope, limit=limit + 1))
    if found.is_empty() and not describing:
        raise ConfigurationError(
            f"No job of {scope.dataset} was cut into chunks under this spec; see --chunk-s of classify."
        )
    columns = ("job_id from to tags caption changes" if describing else "chunk from to label margin").split()
    cells = _described_chunk if describing else _labelled_chunk
    OUT.print(make_table(columns, map(cells, found[:limit].iter_rows(named=True))))
    if len(found) > limit:
        print_line(f"... and {_IN_FULL}")


def _described_chunk(row: dict[str, Any]) -> tuple[object, ...]:
    changes = ", ".join(f"{each['time_s']:.2f} s ({each['kind']})" for each in json.loads(row["changes"]))
    return row["job_id"], f"{row['start_s']:g} s", f"{row['end_s']:g} s", _tags(row), _caption(row), changes


def _labelled_chunk(row: dict[str, Any]) -> tuple[object, ...]:
    end = "end" if row["end_s"] is None else f"{row['end_s']:g} s"
    return row["chunk_id"], f"{row['start_s'] or 0:g} s", end, row["label"] or row["code"], row["margin"]


def _temperature(engine: Engine, spec_id: str) -> float:
    found = read_calibration(engine, spec_id)
    if found is None:
        raise ConfigurationError(
            f"Spec {spec_id} is not calibrated; calibrate it on known answers with `reelabel calibrate MANIFEST`."
        )
    return float(found["temperature"])


def _unchanged(part: pl.DataFrame) -> pl.DataFrame:
    return part


def _calibrator(temperature: float) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """Add calibrated probabilities and the label's confidence; they are null for failures."""

    def add(part: pl.DataFrame) -> pl.DataFrame:
        is_label = part["probabilities"].is_not_null()
        rows = iter(calibrate_probabilities(part["probabilities"].drop_nulls().to_list(), temperature))
        lists = [next(rows) if label else None for label in is_label]
        column = pl.Series("calibrated_probabilities", lists, dtype=pl.List(pl.Float64))
        return part.with_columns(column, confidence=column.list.get(part["choice_index"]))

    return add
