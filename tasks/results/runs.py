"""The rows of runs, from start to end, and the manifests for which a run was started on arrival."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import RowMapping, String, case, cast, func, literal, select, update
from sqlalchemy.dialects.postgresql import JSONB, distinct_on, insert

from infra.database.connect import database_errors
from infra.processes import has_ended, own_process
from reelabel.errors import ConfigurationError
from reelabel.sampling.spec import EVERY
from tasks.database.scope import Scope
from tasks.database.tables import ARRIVAL, RUN, RUN_SPEC, SPEC
from tasks.domain import DescribeSpec, RunSpec, Spec
from tasks.plans.lease import expire_all, holder_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from sqlalchemy import Connection, Engine, Label, Select

    from reelabel.sources.object_store import ObjectInfo

_SHOWN_RUNS = 5
_SHORT_ID = 8
LOST_AFTER = timedelta(minutes=5)
LOST = "The run was killed or lost its machine; start it again to continue."
_UNSEEN = (RUN.c.state == "running") & (RUN.c.seen_at < func.now() - LOST_AFTER)
IS_UNDER_WAY = (RUN.c.state == "running") & ~_UNSEEN


def open_run(engine: Engine, *, run_id: UUID, spec: Spec, facts: dict[str, Any], setup_ms: float = 0.0) -> None:
    """Record the start of a run, `setup_ms` ago, with its spec and other columns.

    A run that is restarted under the same id keeps its row and its start.
    """
    row = {"spec_id": spec.spec_id, "state": "running", "message": "", "process": own_process(), **facts}
    started_at = func.now() - timedelta(milliseconds=setup_ms)
    with database_errors(), engine.begin() as connection:
        lock_dataset(connection, facts["dataset"])
        body = spec.model_dump(mode="json")
        connection.execute(insert(SPEC).values(spec_id=spec.spec_id, body=body).on_conflict_do_nothing())
        statement = insert(RUN).values(run_id=run_id, started_at=started_at, **row)
        restarted = row | {"ended_at": None, "exported_at": None, "seen_at": func.now()}
        restarted["versions"] = RUN.c.versions.op("||")(statement.excluded.versions)  # workers add theirs only once
        connection.execute(statement.on_conflict_do_update(index_elements=["run_id"], set_=restarted))
        # After a restart under another spec, earlier results still refer to the pair with the old one.
        pair = {"run_id": run_id, "spec_id": spec.spec_id}
        connection.execute(insert(RUN_SPEC).values(pair).on_conflict_do_nothing())


def lock_dataset(connection: Connection, dataset: str, *, exclusive: bool = False) -> None:
    """Keep a dataset from being archived or restored until the transaction ends; if exclusive, from new runs, too.

    Raises:
        ConfigurationError: It is being archived or restored, or, if exclusive, a run of it is starting.
    """
    lock = func.pg_try_advisory_xact_lock if exclusive else func.pg_try_advisory_xact_lock_shared
    if not connection.execute(select(lock(func.hashtextextended(f"dataset/{dataset}", 0)))).scalar_one():
        raise ConfigurationError(
            f"Dataset {dataset} is being archived, restored or started; try again once this is done."
        )


def update_run(engine: Engine, run_id: UUID, **columns: Any) -> None:  # noqa: ANN401 - column values
    with database_errors(), engine.begin() as connection:
        connection.execute(update(RUN).where(RUN.c.run_id == run_id).values(**columns))


def add_versions(engine: Engine, run_id: UUID, versions: Mapping[str, Any]) -> None:
    """Add to the versions of a run; several processes may work for one run."""
    update_run(engine, run_id, versions=RUN.c.versions.op("||")(literal(dict(versions), JSONB)))


def close_run(engine: Engine, run_id: UUID, *, state: str, message: str, **columns: Any) -> None:  # noqa: ANN401
    """Record a run's final state at the database's time, with other columns."""
    update_run(engine, run_id, state=state, message=message, ended_at=func.now(), exported_at=None, **columns)


def record_heartbeat(engine: Engine, run_id: UUID) -> None:
    """Record that a run is alive, even if it was recorded as lost, but not if it has ended."""
    columns = {"state": "running", "seen_at": func.now(), "ended_at": None, "exported_at": None}
    statement = update(RUN).where(RUN.c.run_id == run_id, RUN.c.state.in_(["running", "lost"])).values(columns)
    with database_errors(), engine.begin() as connection:
        connection.execute(statement)


def close_lost_runs(engine: Engine) -> int:
    """Record the state of lost runs, and return their number; see `lost_runs`.

    The leases of those whose process was on this machine expire at once.
    """
    columns = {"state": "lost", "message": LOST, "ended_at": RUN.c.seen_at}
    with database_errors(), engine.begin() as connection:
        is_lost = RUN.c.run_id.in_(lost_runs(connection)) & (RUN.c.state == "running")
        for host, process in connection.execute(select(RUN.c.host, RUN.c.process).where(is_lost)).all():
            if has_ended(process):
                expire_all(connection, holder_name(host, process))
        return connection.execute(update(RUN).where(is_lost).values(columns)).rowcount


def lost_runs(connection: Connection) -> set[UUID]:
    """Find runs in state `running` without a heartbeat for `LOST_AFTER`, or whose process on this machine has ended."""
    running = select(RUN.c.run_id, RUN.c.process, _UNSEEN.label("is_unseen")).where(RUN.c.state == "running")
    return {row.run_id for row in connection.execute(running) if row.is_unseen or has_ended(row.process)}


def run_state(connection: Connection) -> Label[str]:
    """Return the column `state`, which is `lost` also for lost runs that are not yet recorded as such."""
    return case((RUN.c.run_id.in_(lost_runs(connection)), "lost"), else_=RUN.c.state).label("state")


def count_lost_runs(engine: Engine) -> int:
    with database_errors(), engine.connect() as connection:
        return len(lost_runs(connection))


def cancel_run(engine: Engine, run_id: UUID) -> None:
    """Record that the user stopped a run, unless it has ended."""
    columns = {"state": "cancelled", "message": "Stopped by the user.", "ended_at": func.now()}
    statement = update(RUN).where(RUN.c.run_id == run_id, RUN.c.state == "running").values(columns)
    with database_errors(), engine.begin() as connection:
        connection.execute(statement)


def read_run(engine: Engine, run_id: UUID) -> RowMapping | None:
    """Read a run's row; None if the run has not started yet."""
    with database_errors(), engine.connect() as connection:
        return connection.execute(select(RUN).where(RUN.c.run_id == run_id)).mappings().one_or_none()


def find_run(engine: Engine, text: str, *, besides: UUID | None = None) -> RowMapping:
    """Find a run by its id, a prefix of it, or `last`: the run that ended last, or started last if none has ended.

    `besides` is a run that is not looked for.

    Raises:
        ConfigurationError: No run or several runs match; the message lists the latest.
    """
    newest = _newest().where(RUN.c.run_id.is_distinct_from(besides))
    by_id = cast(RUN.c.run_id, String).startswith(text.lower(), autoescape=True)
    with database_errors(), engine.connect() as connection:
        query = newest.where(by_id) if text != "last" else _last(connection, besides)
        rows = connection.execute(query).mappings().all()
        latest = connection.execute(newest.limit(_SHOWN_RUNS)).mappings().all()
    if not latest:
        raise ConfigurationError("No run has been started yet; `reelabel classify` starts one.")
    if len(rows) != 1:
        known = ", ".join(f"{row['run_id']} ({row['dataset']})" for row in (rows or latest)[:_SHOWN_RUNS])
        hint = "use a longer prefix" if rows else "use one of the latest"
        raise ConfigurationError(f"{len(rows) or 'No'} runs match {text!r}; {hint}: {known}.")
    return rows[0]


def _last(connection: Connection, besides: UUID | None) -> Select[Any]:
    has_ended = (RUN.c.state != "running") | RUN.c.run_id.in_(lost_runs(connection))
    ended_at = func.coalesce(RUN.c.ended_at, RUN.c.seen_at)
    others = select(RUN).where(RUN.c.run_id.is_distinct_from(besides))
    return others.order_by(has_ended.desc(), case((has_ended, ended_at), else_=RUN.c.started_at).desc()).limit(1)


def short_ids(engine: Engine, run_ids: Iterable[UUID]) -> dict[UUID, str]:
    """Return the shortest prefix of each id, of at least eight characters, that matches no other run.

    The ids of runs that were scheduled at the same time begin alike. Ids without a row are only distinguished from each
    other.
    """
    wanted = set(run_ids)
    before, after = (beside(RUN.c.run_id).over(order_by=RUN.c.run_id) for beside in (func.lag, func.lead))
    runs = select(RUN.c.run_id, before.label("before"), after.label("after")).subquery()
    query = select(runs).where(runs.c.run_id.in_(wanted))
    with database_errors(), engine.connect() as connection:
        rows = {run_id: [*filter(None, others)] for run_id, *others in connection.execute(query)}
    return {run_id: _prefix(str(run_id), map(str, rows.get(run_id, wanted - {run_id}))) for run_id in wanted}


def _prefix(text: str, others: Iterable[str]) -> str:
    """Return the shortest prefix of an id that matches none of its neighbours in order."""
    compared = list(others)
    return next(
        text[:end]
        for end in range(_SHORT_ID, len(text) + 1)
        if end == len(text) or not any(other.startswith(text[:end]) for other in compared)
    )


def list_running(engine: Engine) -> list[RowMapping]:
    with database_errors(), engine.connect() as connection:
        is_lost = RUN.c.run_id.in_(lost_runs(connection))
        return list(connection.execute(_newest().where(RUN.c.state == "running", ~is_lost)).mappings().all())


def run_states(engine: Engine, manifest_uri: str, *, since: datetime) -> set[str]:
    """Return the states, such as `running` or `lost`, of a manifest's runs since a time, without backfills."""
    of_manifest = (RUN.c.kind == "classify", RUN.c.manifest_uri == manifest_uri, RUN.c.started_at >= since)
    with database_errors(), engine.connect() as connection:
        return set(connection.execute(select(run_state(connection)).where(*of_manifest)).scalars())


def require_only_spec(engine: Engine, manifest_uri: str) -> RowMapping:
    """Find the latest run of a manifest whose runs all have the same dataset and spec.

    Raises:
        ConfigurationError: The manifest has no run, or its jobs were answered in several ways.
    """
    latest = (
        select(RUN, SPEC.c.body)
        .join(SPEC, SPEC.c.spec_id == RUN.c.spec_id)
        .where(RUN.c.manifest_uri == manifest_uri)
        .ext(distinct_on(RUN.c.dataset, RUN.c.spec_id))
        .order_by(RUN.c.dataset, RUN.c.spec_id, RUN.c.started_at.desc())
    )
    with database_errors(), engine.connect() as connection:
        rows = connection.execute(latest).mappings().all()
    if not rows:
        raise ConfigurationError(
            f"No run of {manifest_uri} has been started; start one with `reelabel classify`, or name one."
        )
    if len(rows) > 1:
        newest = sorted(rows, key=lambda row: row["started_at"], reverse=True)
        names = short_ids(engine, [row["run_id"] for row in newest[:_SHOWN_RUNS]])
        ways = "; ".join(
            f"{names[row['run_id']]} ({row['dataset']}: {describe_spec(row['body'])})" for row in newest[:_SHOWN_RUNS]
        )
        raise ConfigurationError(f"{manifest_uri} was answered in {len(rows)} ways; name one: {ways}.")
    return rows[0]


def describe_spec(body: Mapping[str, Any]) -> str:
    """Return the model, the sampler and the number of frames of a spec, given its `body`, as a phrase."""
    model, sampling = body["model"]["name"], body.get("sampling")
    if sampling is None:
        return f"{model}, {body['sampler']}, {body['frames_per_chunk']} frames per chunk"
    frames = "every frame" if sampling["num_frames"] == EVERY else f"{sampling['num_frames']} frames"
    return f"{model}, {sampling['sampler']}, {frames}"


def newest_run(engine: Engine, *, manifest_uri: str | None, dataset: str | None) -> RowMapping | None:
    """Find the latest run, optionally of a manifest or in a dataset; None if there is none."""
    query = _newest().limit(1)
    if manifest_uri is not None:
        query = query.where(RUN.c.manifest_uri == manifest_uri)
    if dataset is not None:
        query = query.where(RUN.c.dataset == dataset)
    with database_errors(), engine.connect() as connection:
        return connection.execute(query).mappings().one_or_none()


def find_reference(engine: Engine, *, manifest_uri: str, dataset: str | None) -> RowMapping | None:
    """Find the run of a manifest, optionally in a dataset, whose spec backfills use; None if there is none.

    It is the one that was last marked as the reference, else the last of the whole manifest, else the last backfill.
    """
    is_whole = RUN.c.kind != "backfill"
    order = (RUN.c.reference_at.desc().nulls_last(), is_whole.desc(), RUN.c.started_at.desc())
    query = select(RUN).where(RUN.c.manifest_uri == manifest_uri).order_by(*order).limit(1)
    if dataset is not None:
        query = query.where(RUN.c.dataset == dataset)
    with database_errors(), engine.connect() as connection:
        return connection.execute(query).mappings().one_or_none()


def mark_reference(engine: Engine, run_id: UUID, *, is_reference: bool) -> None:
    """Mark a run as the reference of its manifest, or remove its mark."""
    update_run(engine, run_id, reference_at=func.now() if is_reference else None)


def list_other_specs(engine: Engine, run: RowMapping, *, limit: int) -> list[RowMapping]:
    """Read the other specs of runs with the same manifest and dataset, the latest first."""
    latest = func.max(RUN.c.started_at)
    query = (
        select(SPEC.c.spec_id, SPEC.c.body)
        .join(RUN, RUN.c.spec_id == SPEC.c.spec_id)
        .where(RUN.c.manifest_uri == run["manifest_uri"], RUN.c.dataset == run["dataset"])
        .where(SPEC.c.spec_id != run["spec_id"])
        .group_by(SPEC.c.spec_id)
        .order_by(latest.desc())
        .limit(limit)
    )
    with database_errors(), engine.connect() as connection:
        return list(connection.execute(query).mappings().all())


def is_partial_run(engine: Engine, run: RowMapping) -> bool:
    """Whether a run covers only some jobs of its manifest: it is a backfill under a spec that no other run used."""
    query = select(RUN.c.run_id).where(RUN.c.kind != "backfill", Scope.of(run).matches(RUN))
    with database_errors(), engine.connect() as connection:
        return run["kind"] == "backfill" and connection.execute(query.limit(1)).first() is None


def read_spec(engine: Engine, spec_id: str) -> RunSpec:
    """Read the spec of a run that asks questions.

    Raises:
        ConfigurationError: It describes videos, or this version of Reelabel cannot reproduce it.
    """
    spec = read_any_spec(engine, spec_id)
    if isinstance(spec, DescribeSpec):
        raise ConfigurationError(f"Spec {spec_id} is of a run that describes videos, and asks no questions.")
    return spec


def read_any_spec(engine: Engine, spec_id: str) -> Spec:
    """Read a spec, of questions or of descriptions.

    Raises:
        ConfigurationError: This version of Reelabel cannot reproduce it.
    """
    with database_errors(), engine.connect() as connection:
        body = connection.execute(select(SPEC.c.body).where(SPEC.c.spec_id == spec_id)).scalar_one()
    spec: Spec | None = None
    with suppress(ValidationError):
        spec = DescribeSpec.model_validate(body) if "job" in body else RunSpec.model_validate(body)
    if spec is None or spec.spec_id != spec_id:
        raise ConfigurationError(
            f"Spec {spec_id} was created by another version of Reelabel, and this version cannot reproduce it; "
            "use that version, or set the options explicitly."
        )
    return spec


def describes(engine: Engine, spec_id: str) -> bool:
    query = select(SPEC.c.body.has_key("job")).where(SPEC.c.spec_id == spec_id)
    with database_errors(), engine.connect() as connection:
        return bool(connection.execute(query).scalar_one())


def _newest() -> Select[Any]:
    return select(RUN).order_by(RUN.c.started_at.desc())


def unstarted_manifests(engine: Engine, found: Sequence[ObjectInfo]) -> list[tuple[ObjectInfo, UUID | None]]:
    """Select the manifests for whose version no run was started last.

    Returns:
        The manifests in the order of `found`, each with the flow run last started for it, or None.
    """
    query = (
        select(ARRIVAL.c.manifest_uri, ARRIVAL.c.fingerprint, ARRIVAL.c.flow_run_id)
        .ext(distinct_on(ARRIVAL.c.manifest_uri))
        .where(ARRIVAL.c.manifest_uri == func.any([info.uri for info in found]))
        .order_by(ARRIVAL.c.manifest_uri, ARRIVAL.c.created_at.desc())
    )
    with database_errors(), engine.connect() as connection:
        last = {uri: (fingerprint, flow_run_id) for uri, fingerprint, flow_run_id in connection.execute(query)}
    before = [last.get(info.uri, (None, None)) for info in found]
    return [
        (info, flow_run_id)
        for info, (fingerprint, flow_run_id) in zip(found, before, strict=True)
        if fingerprint != info.fingerprint
    ]


def record_started(engine: Engine, info: ObjectInfo, flow_run_id: UUID) -> None:
    """Record that a run was started for a version of a manifest; safe to call repeatedly."""
    # The newest, even if the server's clock was set back since the last one.
    last = select(func.max(ARRIVAL.c.created_at)).where(ARRIVAL.c.manifest_uri == info.uri).scalar_subquery()
    created_at = func.greatest(func.now(), last + timedelta(microseconds=1))
    row = {"manifest_uri": info.uri, "fingerprint": info.fingerprint, "flow_run_id": flow_run_id}
    insertion = insert(ARRIVAL).values(**row, created_at=created_at)
    # If an earlier version returns, its row becomes the newest again. A repeated call changes nothing.
    upsert = insertion.on_conflict_do_update(
        index_elements=["manifest_uri", "fingerprint"],
        set_={"flow_run_id": flow_run_id, "created_at": insertion.excluded.created_at},
        where=ARRIVAL.c.flow_run_id != flow_run_id,
    )
    with database_errors(), engine.begin() as connection:
        connection.execute(upsert)
