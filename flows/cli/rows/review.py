"""`reelabel results --format label-studio`: what reviewers should look at first."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from flows.cli.console import print_notice, text_sink
from infra.database.connect import database_errors
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
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
    with database_errors(), engine.connect() as connection:
        found = label_studio_tasks(connection, Scope.of(run), sources, limit=limit)
    text_sink().write(json.dumps(found.tasks).encode() + b"\n")
    sys.stdout.flush()  # an error at exit, such as of a full disk, would be lost
    if found.changed:
        print_notice(f"Left out {pluralize(found.changed, 'label')}: the manifest no longer has the question.")
    if found.bare:
        print_notice(f"{pluralize(found.bare, 'task')} without frames, which are no longer in the cache.")
