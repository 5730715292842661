"""`reelabel results --format label-studio` and `fiftyone`: the least certain labels for reviewers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from flows.cli.console import print_line, print_notice, text_sink
from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.scope import Scope
from tasks.domain import DescribeSpec
from tasks.frame_cache.pool import frame_cache
from tasks.report.jobs import Sources
from tasks.report.review import Uncertain, fiftyone_samples, label_studio_task, load_uncertain
from tasks.results.runs import read_any_spec

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine, RowMapping

    from infra.settings import Settings

_THUMBNAIL_PX = 480


def print_tasks(engine: Engine, settings: Settings, run: RowMapping, *, limit: int) -> None:
    """Write Label Studio tasks for the labels with the lowest margins to standard output, as a JSON array."""
    found = _load(engine, settings, run, limit)
    text_sink().write(json.dumps([label_studio_task(job) for job in found.jobs]).encode() + b"\n")
    sys.stdout.flush()  # an error at exit, such as of a full disk, would be lost
    if found.bare:
        print_notice(f"{pluralize(found.bare, 'task')} without frames, which are no longer in the cache.")


def write_samples(engine: Engine, settings: Settings, run: RowMapping, *, limit: int, folder: Path) -> None:
    """Write the frames of the labels with the lowest margins to a new folder, as FiftyOne samples.

    The list of samples is written last.
    """
    found = _load(engine, settings, run, limit)
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


def _load(engine: Engine, settings: Settings, run: RowMapping, limit: int) -> Uncertain:
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
