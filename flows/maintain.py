"""The flow `maintain`: apply the retention settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterEndTime, FlowRunFilterTags

from flows.run.flow_run import delete_flow_run, list_flow_runs, name_of_current
from flows.run.names import TAG
from flows.run.request import FlowRequest
from flows.run.result import completed_state
from flows.run.run_flow import run_flow
from infra.database.connect import connected
from infra.settings import load_settings
from infra.temporary import remove_stale_folders
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.database.schema import prepare_database
from tasks.frame_cache.eviction import evict
from tasks.frame_cache.orphans import remove_orphans
from tasks.frame_cache.pool import video_store
from tasks.live.record.saved import remove_old_sessions
from tasks.results.retention import (
    PAGE,
    SELECTION,
    older_than,
    remove_old_files,
    remove_plans,
    remove_rows,
    replaced_before,
)
from tasks.results.runs import close_lost_runs, count_lost_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefect import State
    from prefect.client.orchestration import SyncPrefectClient
    from sqlalchemy import Engine

    from infra.settings import Settings
    from tasks.frame_cache.eviction import EvictionResult
    from tasks.results.retention import Rule


_FLOW_RUNS_KEPT = timedelta(days=90)
# Plans that have ended or that no worker processes, and the lists of ids that backfills have written.
_PLANS_KEPT = timedelta(days=7)


def remove_flow_runs(client: SyncPrefectClient, *, ended_before: datetime, dry_run: bool = False) -> int:
    """Remove our flow runs that ended before a given time, with their logs; return their number.

    Other flow runs on the same server are kept. What our runs did is recorded in Postgres.
    """
    old = FlowRunFilter(
        tags=FlowRunFilterTags(all_=[TAG]),
        end_time=FlowRunFilterEndTime(before_=ended_before),
    )
    found = list_flow_runs(client, flow_run_filter=old)
    for flow_run in () if dry_run else found:
        delete_flow_run(client, flow_run)
    return len(found)


class MaintainRequest(FlowRequest):
    dry_run: bool = False
    """Report what would be removed, and remove nothing."""


@run_flow(MaintainRequest, name=lambda: name_of_current("maintain"))
def maintain(request: MaintainRequest) -> State[str]:
    """Apply the retention settings, and close the rows of lost runs."""
    settings = load_settings()
    lines = []
    for line in apply_retention(settings, dry_run=request.dry_run):
        get_run_logger().info("%s", line)
        lines.append(line)
    return completed_state(" ".join(lines))


def apply_retention(settings: Settings, *, dry_run: bool) -> Iterator[str]:
    """Apply each retention setting in turn, and yield a sentence on what was removed."""
    verb = "Would remove" if dry_run else "Removed"
    prepare_database(settings.database)
    with connected(settings.database) as engine:
        lost = count_lost_runs(engine) if dry_run else close_lost_runs(engine)
        yield f"{'Would close' if dry_run else 'Closed'} {pluralize(lost, 'lost run')}."
        for what, rows in _results(engine, settings, dry_run=dry_run):
            yield f"{verb} {pluralize(rows, 'row')} of results {what}."
        yield f"{verb} {_plans(engine, settings, dry_run=dry_run)}."
        if settings.retention.live_days:
            yield f"{verb} {_sessions(engine, settings, age_days=settings.retention.live_days, dry_run=dry_run)}."
    for what, room in _frames(settings, dry_run=dry_run):
        yield f"{verb} {pluralize(room.removed, 'cached file')} of {room.removed_bytes:,} bytes {what}."
    yield f"{verb} {_old_files(settings, dry_run=dry_run)}."
    with get_client(sync_client=True) as client:
        removed = remove_flow_runs(client, ended_before=datetime.now(UTC) - _FLOW_RUNS_KEPT, dry_run=dry_run)
    yield f"{verb} {pluralize(removed, 'flow run')} from Prefect's history."


def _results(engine: Engine, settings: Settings, *, dry_run: bool) -> Iterator[tuple[str, int]]:
    retention = settings.retention
    rules: dict[str, Rule] = {}
    if retention.results_days:
        rules[f"older than {retention.results_days:g} days"] = older_than(timedelta(days=retention.results_days))
    if retention.history_days:
        what = f"replaced more than {retention.history_days:g} days ago"
        rules[what] = replaced_before(timedelta(days=retention.history_days))
    for number, (what, rule) in enumerate(rules.items()):
        yield what, remove_rows(engine, rule, earlier=[*rules.values()][:number], dry_run=dry_run)


def _plans(engine: Engine, settings: Settings, *, dry_run: bool) -> str:
    assert settings.store.uri is not None
    plans, files = remove_plans(
        engine,
        ObjectStore(settings.store, settings.web),
        root_uri=settings.store.uri,
        age=_PLANS_KEPT,
        dry_run=dry_run,
    )
    return f"{pluralize(plans, 'plan')} and {pluralize(files, 'plan file')}"


def _sessions(engine: Engine, settings: Settings, *, age_days: float, dry_run: bool) -> str:
    assert settings.store.uri is not None
    sessions, files = remove_old_sessions(
        engine,
        ObjectStore(settings.store),
        root_uri=settings.store.uri,
        age=timedelta(days=age_days),
        dry_run=dry_run,
    )
    return f"{pluralize(sessions, 'live session')} and {pluralize(files, 'file')} of live sessions"


def _old_files(settings: Settings, *, dry_run: bool) -> str:
    retention, root_uri = settings.retention, (settings.store.uri or "").rstrip("/")
    remove = partial(remove_old_files, ObjectStore(settings.store, settings.web), dry_run=dry_run)
    selections = remove(f"{root_uri}/selections", SELECTION, age=_PLANS_KEPT)
    pages = 0
    if retention.reports_days:
        places = (f"{root_uri}/reports", (settings.home.absolute() / "reports").as_uri())
        pages = sum(remove(place, PAGE, age=timedelta(days=retention.reports_days)) for place in places)
    folders = remove_stale_folders(dry_run=dry_run)
    return (
        f"{pluralize(selections, 'list')} of selected ids, {pluralize(pages, 'report')} and "
        f"{pluralize(folders, 'temporary folder')} of killed processes"
    )


def _frames(settings: Settings, *, dry_run: bool) -> Iterator[tuple[str, EvictionResult]]:
    retention, root_uri = settings.retention, settings.store.uri
    assert root_uri is not None
    objects = ObjectStore(settings.store, settings.web)
    orphans = remove_orphans(objects, root_uri, videos=video_store(settings), dry_run=dry_run)
    yield "whose video was removed or changed", orphans
    if retention.frames_days or retention.frames_bytes is not None:
        before = datetime.now(UTC) - timedelta(days=retention.frames_days) if retention.frames_days else None
        room = evict(objects, root_uri, written_before=before, max_bytes=retention.frames_bytes, dry_run=dry_run)
        yield "beyond the limits of age or size", room
