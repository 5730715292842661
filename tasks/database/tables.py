"""The tables, as SQLAlchemy knows them and as the first migration creates them: columns, constraints, indexes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    DDL,
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    MetaData,
    Sequence,
    SmallInteger,
    Table,
    Text,
    Uuid,
    create_mock_engine,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from tasks.database.meanings import describe_columns
from tasks.description.cost import DescriptionCost
from tasks.domain import Answer, ChunkCounts, FirstAnswer, OrderBias, Words
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import Json, columns_of, names_of

if TYPE_CHECKING:
    from collections.abc import Container

    from _typeshed import DataclassInstance
    from sqlalchemy.types import TypeEngine

    Kind = type[TypeEngine[Any]] | TypeEngine[Any]

METADATA = MetaData(schema="reelabel")

_TYPES: dict[type, type[TypeEngine[Any]]] = {str: Text, bool: Boolean, float: Double, Json: JSONB}
_INTEGERS: dict[int, type[TypeEngine[Any]]] = {16: SmallInteger, 32: Integer, 64: BigInteger}
_ALIGNED_BYTES = {Double: 8, BigInteger: 8, DateTime: 8, Integer: 4, SmallInteger: 2, Boolean: 1, Uuid: 1}
_TIME = DateTime(timezone=True)
_PROBABILITIES = ARRAY(REAL)  # as precise as those of models
_RUN_KINDS = "kind IN ('classify', 'describe', 'backfill')"


def _some(kind: Kind, *names: str) -> list[Column[Any]]:
    """Return columns that may be null."""
    return [Column(name, kind) for name in names]


def _all(kind: Kind, *names: str, default: str | None = None) -> list[Column[Any]]:
    """Return columns that are never null, with a default in SQL."""
    return [Column(name, kind, nullable=False, server_default=default and text(default)) for name in names]


def _key(*names: str) -> list[Column[Any]]:
    return [Column(name, Text, primary_key=True) for name in names]


def _times(*names: str) -> list[Column[Any]]:
    return _all(_TIME, *names, default="now()")


def _spec(name: str = "spec_id") -> Column[Any]:
    return Column(name, Text, ForeignKey("reelabel.spec.spec_id"), nullable=False)


def _written() -> list[Column[Any]]:
    return [
        *_all(Uuid, "run_id"),
        *_all(Integer, "shard_index"),
        *_all(BigInteger, "fence", default="0"),
        *_all(Text, "host"),
        *_times("created_at"),
    ]


def _by_run() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["run_id", "spec_id"], ["reelabel.run_spec.run_id", "reelabel.run_spec.spec_id"])


def _checks(*conditions: str) -> list[CheckConstraint]:
    return [CheckConstraint(condition) for condition in conditions]


def record_columns(record: type[DataclassInstance], *, required: Container[str] = ()) -> list[Column[Any]]:
    """Return the columns that store a record (`tasks.domain.record`), with its docstring as their comments.

    Those that are not required may be null.
    """
    return [
        Column(
            each.name,
            _INTEGERS[each.bits] if each.type is int else _TYPES[each.type],
            nullable=each.name not in required,
            comment=each.description.replace("None", "null") or None,
        )
        for each in columns_of(record)
    ]


def _packed(*columns: Column[Any]) -> list[Column[Any]]:
    """Return columns with the widest numbers first and texts last, so that Postgres pads none of millions of rows."""
    for place, column in enumerate(columns, 1):
        column.info["place"] = place
    return sorted(columns, key=lambda each: -_ALIGNED_BYTES.get(type(each.type), 0))


def in_reading_order(table: Table) -> list[Column[Any]]:
    """Return the columns of a table as a reader wants them, whatever their order on disk: outcome first, then costs."""
    return sorted(table.c, key=lambda each: each.info.get("place", 0))


SPEC = Table(
    "spec",
    METADATA,
    *_key("spec_id"),
    *_all(JSONB, "body"),
    *_times("created_at"),
    comment="Everything on the run's side that can change an answer.",
)

RUN = Table(
    "run",
    METADATA,
    Column("run_id", Uuid, primary_key=True),
    *(*_all(Text, "dataset"), _spec(), *_all(Text, "manifest_uri"), *_all(Text, "native_sampler", default="''")),
    *(*_all(Text, "kind", "state"), *_all(Text, "message", default="''")),
    *(*_all(BigInteger, "jobs_total"), *_all(BigInteger, "jobs_rejected", default="0")),
    *_all(BigInteger, "jobs_skipped"),
    *_all(BigInteger, "jobs_labelled", "jobs_failed", default="0"),
    *_all(BigInteger, "videos_extracted", "videos_cached", "videos_rewritten", default="0"),
    *_all(BigInteger, "shards_total", "shards_done", default="0"),
    *_all(JSONB, "stage_ms", "versions", default="'{}'"),
    *(*_all(Text, "host"), *_some(Text, "process")),
    *(*_times("started_at"), *_some(_TIME, "ended_at")),
    *_some(JSONB, "wall_ms"),
    *(*_all(BigInteger, "engines", default="1"), *_some(BigInteger, "gpus", "prompt_tokens", "cached_tokens")),
    *(*_some(Double, "jobs_per_s", "jobs_per_hour_held", "gpu_hours", "cpu_hours", "cost"), *_some(Text, "bottleneck")),
    *_times("seen_at"),
    *_all(JSONB, "coverage", default="'{}'"),
    *_some(_TIME, "reference_at", "exported_at"),
    *_checks(_RUN_KINDS, "state IN ('running', 'done', 'failed', 'cancelled', 'lost')", "engines > 0"),
    *_checks(*(f"{name} >= 0" for name in ("jobs_total", "jobs_rejected", "jobs_skipped"))),
    Index("run_by_start", text("started_at DESC")),
    comment="seen_at is the heartbeat: without it, a run whose node was lost would stay `running`. process names the "
    "run's process, so that on its own machine a killed one is noticed at once. wall_ms is the mean over engines. "
    "Values known only at the end of a run are null until then. reference_at is when the run was marked as the "
    "reference of its manifest, whose spec backfills take; the latest mark counts.",
)

RUN_SPEC = Table(
    "run_spec",
    METADATA,
    Column("run_id", Uuid, ForeignKey("reelabel.run.run_id", ondelete="CASCADE"), primary_key=True),
    Column("spec_id", Text, ForeignKey("reelabel.spec.spec_id"), primary_key=True),
    comment="The specs of a run. Results and failures refer to run and spec by this one key: one check per row instead "
    "of two, and it also proves that the run and the spec belong together.",
)

_FRAME_TIMES = ("fetch_ms", "decode_ms", "embed_ms", "cache_write_ms", "cache_read_ms")
RESULT = Table(
    "result",
    METADATA,
    *_key("dataset", "job_id", "spec_id"),
    *(*_all(Text, "job_digest"), *_some(Text, "answer", "task", "subtask", "label")),
    *_packed(
        *record_columns(Words),
        *_some(Double, "margin"),
        *_some(_PROBABILITIES, "probabilities"),
        *_some(Double, "entropy_nats"),
        *record_columns(Answer, required={*names_of(Answer)} - {"choice_index", "choice_mass"}),
        *record_columns(OrderBias, required=["permutations"]),
        *record_columns(FrameProvenance, required=["source_fingerprint", "frames_used", *_FRAME_TIMES]),
        *_some(Text, "routed_by", "copied_from"),
        *record_columns(FirstAnswer),
        *record_columns(ChunkCounts),
        *_written(),
    ),
    _by_run(),
    *_checks("choice_index >= 0", "margin BETWEEN 0 AND 1", "entropy_nats >= 0", "choice_mass BETWEEN 0 AND 1"),
    *_checks("chunks > 0", "chunks_answered BETWEEN 1 AND chunks", "frames_decoded >= 0", "bytes_fetched >= 0"),
    *_checks("choice_index < array_length(probabilities, 1)", "num_nonnulls(label, text, data) = 1"),
    *_checks(*(f"(label IS NULL) = ({name} IS NULL)" for name in ("choice_index", "probabilities", "margin"))),
    *_checks("finish_reason IN ('stop', 'length')", "(label IS NULL) = (finish_reason IS NOT NULL)"),
    Index("result_by_run", "run_id"),
    comment="Labels, and answers in words to jobs without choices. fence is the token of the lease under which the row "
    "was written: an older lease never overwrites the rows of a newer one. first_label and first_margin are those of "
    "the first pass, before escalation to a dense sampler.",
)

# What is kept of a replaced label.
_HISTORY = (
    *("dataset", "job_id", "spec_id", "job_digest", "source_fingerprint", "task", "label", "text", "data"),
    *("probabilities", "margin", "run_id", "created_at"),
)
_OF_ONE_KIND = {"task", "label", "text", "data", "probabilities", "margin"}  # null with choices, or without
RESULT_HISTORY = Table(
    "result_history",
    METADATA,
    Column("history_id", BigInteger, Identity(always=True), primary_key=True),
    *(Column(name, RESULT.c[name].type, nullable=name in _OF_ONE_KIND) for name in _HISTORY),
    *(*_all(Uuid, "replaced_by"), *_times("replaced_at")),
    Index("result_history_by_job", "dataset", "job_id"),
    Index("result_history_by_run", "run_id"),
    Index("result_history_by_replacement", "replaced_by"),
    comment="Labels that were replaced by another answer or by a failure, with what `reelabel diff` compares. "
    "replaced_by is the run that did so.",
)

ROUTE = Table(
    "route",
    METADATA,
    Column("spec_id", Text, ForeignKey("reelabel.spec.spec_id"), primary_key=True),
    *_all(Double, "escalate_below"),
    *(*_all(Text, "dataset", "manifest_uri"), _spec("first_spec_id"), _spec("dense_spec_id")),
    *_all(BigInteger, "jobs"),
    *_all(Double, "target", "loss_at_most", "accuracy", "first_accuracy", "dense_accuracy", "asked_again"),
    *_all(BigInteger, "frames_decoded", "first_frames", "dense_frames"),
    *_times("created_at"),
    *_checks("escalate_below >= 0", "jobs > 0"),
    comment="The margin below which a job is escalated to a dense sampler: one per spec, proven on known answers, with "
    "its effect on them.",
)

CALIBRATION = Table(
    "calibration",
    METADATA,
    Column("spec_id", Text, ForeignKey("reelabel.spec.spec_id"), primary_key=True),
    *_all(Double, "temperature", "temperature_low", "temperature_high"),
    *_all(Uuid, "run_id"),
    *_all(Text, "dataset", "manifest_uri"),
    *_all(BigInteger, "jobs", "wrong"),
    *_all(Double, "accuracy", "confidence_before", "confidence_after"),
    *_all(Double, "ece_before", "ece_after", "nll_before", "nll_after", "nll_change_low", "nll_change_high"),
    *_all(SmallInteger, "bins"),
    *_times("created_at"),
    *_checks("temperature > 0", "jobs > 0", "wrong > 0"),
    comment="One temperature per spec, fitted on known answers, with its effect on held-out jobs. Results keep the raw "
    "probabilities of the model.",
)

EVALUATION = Table(
    "evaluation",
    METADATA,
    Column("evaluation_id", Uuid, primary_key=True),
    *_all(Text, "dataset", "manifest_uri"),
    *_all(JSONB, "body"),
    *_times("created_at"),
    Index("evaluation_by_dataset", "dataset", "created_at"),
    comment="Comparisons of several specs on known answers, each as one document: accuracies, differences, costs.",
)

FAILURE = Table(
    "failure",
    METADATA,
    *_key("dataset", "job_id", "spec_id"),
    *(*_all(Text, "job_digest"), *_some(Text, "source_fingerprint"), *_all(Text, "stage", "code", "message")),
    *_all(Integer, "attempts", default="1"),
    *record_columns(ChunkCounts),
    *_some(Text, "task", "subtask"),
    *_written(),
    _by_run(),
    *_checks("attempts >= 1", "chunks > 0", "chunks_answered BETWEEN 0 AND chunks"),
    Index("failure_by_run", "run_id"),
    comment="The jobs that have no label, and why.",
)

CHUNK = Table(
    "chunk",
    METADATA,
    *_key("dataset", "job_id", "spec_id"),
    Column("chunk", Integer, primary_key=True),
    *(*_all(Text, "job_digest"), *_some(Text, "label")),
    *_packed(
        *_some(Double, "start_s", "end_s", "margin"),
        *_some(_PROBABILITIES, "probabilities"),
        *_some(Double, "entropy_nats"),
        *_some(Text, "stage", "code", "message"),
        *record_columns(Answer),
        *record_columns(OrderBias),
        *_some(Text, "routed_by"),
        *record_columns(FrameProvenance),
        *_written(),
    ),
    _by_run(),
    *_checks("chunk >= 0", "choice_index >= 0", "margin BETWEEN 0 AND 1", "(label IS NULL) <> (code IS NULL)"),
    Index("chunk_by_run", "run_id"),
    comment="The chunks that a job's label or failure follows from, each with a label of its own, or with the reason "
    "why it has none. They are all written and replaced together with the row of their job, also those whose answers "
    "an earlier run had: run_id and fence are those of the row of the job.",
)

_CAPTION = ("caption_score", "caption_probability")
DESCRIPTION = Table(
    "description",
    METADATA,
    *_key("dataset", "job_id", "spec_id"),
    *_all(Text, "job_digest", "video_uri", "source_fingerprint", "embedding_key"),
    *_all(Integer, "dimensions"),
    *_some(Text, "task", "subtask"),
    *(*_all(Double, "duration_s"), *_all(JSONB, "tags"), *_some(Text, "caption"), *_some(Double, *_CAPTION)),
    *(*_all(JSONB, "scenes"), *_all(Integer, "scene_changes")),
    *(*_all(Text, "scene_method"), *_all(Text, "scene_note", default="''")),
    *(*_all(Integer, "chunks", "frames_used"), *_all(Integer, "frame_pixels", default="0")),
    *_some(Text, "decode_method", "decode_note"),
    *record_columns(DescriptionCost, required=names_of(DescriptionCost)),
    *_written(),
    _by_run(),
    *_checks("dimensions > 0", "duration_s >= 0", "scene_changes >= 0", "chunks > 0"),
    *_checks("(caption IS NULL) = (caption_score IS NULL)"),
    Index("description_by_run", "run_id"),
    Index("description_by_embedding", "embedding_key", postgresql_using="hash"),
    comment="Descriptions of videos: one row per job and spec of a describe run, in place of a label. tags is a list, "
    "best first, of objects with text, score and probability; scenes one of objects with start_s, end_s, shots and "
    "begins. Times are in seconds since the video's first frame. Costs are those of the run that wrote the row: 0 for "
    "what was in the cache. video_uri is without signatures and embedded videos; embedding_key and dimensions name the "
    "vectors of its frames.",
)

DESCRIPTION_CHUNK = Table(
    "description_chunk",
    METADATA,
    *_key("dataset", "job_id", "spec_id"),
    Column("chunk", Integer, primary_key=True),
    *_all(Double, "start_s", "end_s"),
    *_all(Integer, "frames_used"),
    *(*_all(JSONB, "tags"), *_some(Text, "caption"), *_some(Double, *_CAPTION), *_all(JSONB, "changes")),
    ForeignKeyConstraint(
        ["dataset", "job_id", "spec_id"],
        [f"reelabel.description.{name}" for name in ("dataset", "job_id", "spec_id")],
        ondelete="CASCADE",
    ),
    *_checks("chunk >= 0"),
    comment="The chunks of a described video. changes is a list of objects with time_s, score, frame, which counts the "
    "chunk's sampled frames, and kind: cut, gradual or sampled. A chunk without frames has no tags and no caption.",
)

# Tokens of leases, one sequence for all plans: of two leases of any plans, the one with the greater token is newer.
FENCE = Sequence("fence", metadata=METADATA)

_IS_OPEN = text("state = 'open'")
PLAN = Table(
    "plan",
    METADATA,
    Column("plan_id", Uuid, primary_key=True),
    Column("run_id", Uuid, ForeignKey("reelabel.run.run_id", ondelete="CASCADE"), nullable=False),
    *(*_all(Text, "dataset"), _spec(), *_all(Text, "manifest_uri", "manifest_fingerprint", "kind")),
    *_all(Boolean, "shared"),
    *_all(Text, "plan_uri"),
    *(*_all(Integer, "shards"), *_all(BigInteger, "jobs")),
    *_all(Text, "state", default="'open'"),
    *(*_times("created_at"), *_some(_TIME, "ended_at")),
    *_checks(_RUN_KINDS, "state IN ('open', 'done', 'dropped')", "shards > 0", "jobs > 0"),
    Index("plan_by_run", "run_id"),
    Index("plan_open", "spec_id", "created_at", postgresql_where=_IS_OPEN),
    Index(
        "plan_shared",
        *("dataset", "spec_id", "manifest_fingerprint"),
        unique=True,
        postgresql_where=text("state = 'open' AND shared"),
    ),
    comment="The work of a run, in shards. Runs with the same manifest and spec share a plan.",
)

SHARD = Table(
    "shard",
    METADATA,
    Column("plan_id", Uuid, ForeignKey("reelabel.plan.plan_id", ondelete="CASCADE"), primary_key=True),
    Column("shard_index", Integer, primary_key=True),
    *_all(Integer, "jobs"),
    *(*_all(Text, "state", default="'planned'"), *_some(Text, "claimed_for", "holder")),
    *(*_some(_TIME, "lease_until"), *_some(BigInteger, "token")),
    *_all(SmallInteger, "attempts", default="0"),
    *_all(Text, "message", default="''"),
    *_some(JSONB, "report"),
    *_checks("jobs > 0", "state IN ('planned', 'extracted', 'done', 'failed')"),
    *_checks("claimed_for IN ('extract', 'infer', 'both')"),
    # Claimable shards and leased shards. Both indexes stay small, so that a claim's cost does not grow with the plan.
    Index(
        "shard_free",
        *("plan_id", "state", "shard_index"),
        postgresql_where=text("lease_until IS NULL AND state IN ('planned', 'extracted')"),
    ),
    Index("shard_held", "plan_id", postgresql_where=text("lease_until IS NOT NULL")),
    comment="Each shard is leased to one worker at a time.",
)
# Rows are updated often: with half of each page free, Postgres can keep new versions of a row on the same page.
_HALF_FREE: Any = DDL("ALTER TABLE reelabel.shard SET (fillfactor = 50)")  # type: ignore[no-untyped-call]
event.listen(SHARD, "after_create", _HALF_FREE)

ARRIVAL = Table(
    "arrival",
    METADATA,
    *_key("manifest_uri", "fingerprint"),
    *_all(Uuid, "flow_run_id"),
    *_times("created_at"),
    comment="Manifests for which a run was started on arrival, so that each version is started once.",
)

LIVE_SESSION = Table(
    "live_session",
    METADATA,
    Column("session_id", Uuid, primary_key=True),
    *(*_all(Text, "model"), *_all(JSONB, "config")),
    *(*_times("started_at", "seen_at"), *_some(_TIME, "ended_at"), *_some(Text, "reason")),
    *(*_some(BigInteger, "frames_received", "frames_similar"), *_all(BigInteger, "frames_kept", default="0")),
    *(*_some(BigInteger, "frames_evicted"), *_all(BigInteger, "frames_lost", default="0")),
    *_all(Double, "audio_s", default="0"),
    *(*_all(JSONB, "versions"), *_all(Text, "host")),
    *_checks(*(f"frames_{name} >= 0" for name in ("received", "similar", "kept", "evicted", "lost"))),
    *_checks("audio_s >= 0", "(ended_at IS NULL) = (reason IS NULL)"),
    Index("live_session_by_start", text("started_at DESC")),
    comment="Live sessions, one row each. seen_at is the heartbeat of the server: without it, a session whose server "
    "was killed would stay open. A session that has ended has a reason. config is what the client asked for.",
)


def _session() -> Column[Any]:
    of_session = ForeignKey("reelabel.live_session.session_id", ondelete="CASCADE")
    return Column("session_id", Uuid, of_session, primary_key=True)


LIVE_FRAMES = Table(
    "live_frames",
    METADATA,
    _session(),
    Column("part", Integer, primary_key=True),
    *_all(Text, "key"),
    *(*_all(BigInteger, "first_frame"), *_all(Integer, "frames")),
    *_all(Double, "first_s", "last_s"),
    *_all(BigInteger, "bytes"),
    *_checks("part >= 0", "first_frame >= 0", "frames > 0"),
    comment="The frame files of a session's kept frames, in order. Times are those of the frames, in seconds; key is "
    "below the store's root.",
)

LIVE_QUERY = Table(
    "live_query",
    METADATA,
    _session(),
    Column("query", Integer, primary_key=True),
    *(*_all(Text, "question"), *_some(ARRAY(Text), "choices"), *_some(Text, "answer")),
    *(*_some(SmallInteger, "choice_index"), *_some(ARRAY(Double), "probabilities"), *_some(Double, "margin")),
    *_some(Text, "code", "message"),
    *(*_all(Double, "asked_s"), *_all(ARRAY(Integer), "frames")),
    *(*_some(Double, "last_frame_s"), *_all(Double, "audio_s", default="0")),
    *_all(Integer, "prompt_tokens", "cached_tokens", "output_tokens"),
    *(*_some(Double, "first_token_ms"), *_all(Double, "total_ms")),
    *(*_all(Text, "model"), *_times("created_at")),
    *_checks("query >= 0", "array_length(choices, 1) >= 2", "choice_index >= 0", "margin BETWEEN 0 AND 1"),
    *_checks(*(f"{each} >= 0" for each in ("audio_s", "prompt_tokens", "cached_tokens", "output_tokens", "total_ms"))),
    *_checks("(answer IS NULL) <> (code IS NULL)", "choices IS NULL OR answer IS NULL OR choice_index IS NOT NULL"),
    comment="The queries of a session, each written before its answer is acknowledged. frames are the numbers of the "
    "kept frames that a query saw, in order; one is listed twice where the model was shown it twice, as its successor "
    "had another size. asked_s and last_frame_s are on the session's clock; first_token_ms and total_ms are from the "
    "query's arrival. A query without an answer has a code.",
)


for _table in (RESULT, FAILURE, CHUNK, RUN):
    describe_columns(_table)


def schema_sql() -> str:
    """Return the statements that create all tables, in an order that is the same in each process."""
    statements: list[str] = []

    def note(ddl: Any, *_: object, **__: object) -> None:  # noqa: ANN401 - any of SQLAlchemy's statements
        statements.append(f"{ddl.compile(dialect=engine.dialect)};")

    engine = create_mock_engine("postgresql+psycopg://", note)
    METADATA.create_all(engine, checkfirst=False)
    # SQLAlchemy has the indexes of a table in a set.
    return "\n".join(sorted(statements))
