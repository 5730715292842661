"""`reelabel results --format label-studio`: what reviewers should look at first."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from flows.cli.console import text_sink
from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tasks.database.scope import Scope
from tasks.domain import DescribeSpec
from tasks.frame_cache.pool import frame_cache
from tasks.report.jobs import Sources
from tasks.report.review import label_studio_tasks
from tasks.results.runs import read_any_spec

if TYPE_CHECKING:
    from sqlalchemy import Engine, RowMapping

    from infra.settings import Settings

_THUMBNAIL_PX = 480


def print_tasks(engine: Engine, settings: Settings, run: RowMapping, *, limit: int) -> None:
    """Write tasks of Label Studio for the labels of the lowest margins to standard output, as a JSON array."""
    spec = read_any_spec(engine, run["spec_id"])
    if isinstance(spec, DescribeSpec):
        raise ConfigurationError("--format label-studio is for labels; this run has described videos.")
    if settings.store.uri is None:
        raise ConfigurationError("Tasks need the store of the run's frames; set REELABEL_STORE_URI.")
    sources = Sources(
        run["manifest_uri"], spec, ObjectStore(settings.store, settings.web), frame_cache(settings), _THUMBNAIL_PX
    )
    sink, separator = text_sink(), "["
    with database_errors(), engine.connect() as connection:
        for task in label_studio_tasks(connection, Scope.of(run), sources, limit=limit):
            sink.write(f"{separator}{json.dumps(task)}".encode())
            separator = ",\n"
    if separator == "[":
        raise ConfigurationError(
            f"No label of this run has its question in {run['manifest_uri']} any more, so there is nothing to review."
        )
    sink.write(b"]\n")
    sys.stdout.flush()  # at exit, nobody would hear of a full disk
