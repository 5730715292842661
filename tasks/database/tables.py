"""The tables of `sql/migrations`, for SQLAlchemy Core; a test checks that both agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from reelabel.frames.provenance import FrameProvenance
from reelabel.record import columns_of
from tasks.description.cost import DescriptionCost
from tasks.domain import Answer, ChunkCounts, FirstAnswer, OrderBias

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from sqlalchemy.types import TypeEngine

METADATA = MetaData(schema="reelabel")

_TYPES: dict[type, type[TypeEngine[Any]]] = {str: Text, bool: Boolean, float: Double}
_INTEGERS: dict[int, type[TypeEngine[Any]]] = {16: SmallInteger, 32: Integer, 64: BigInteger}


def record_columns(record: type[DataclassInstance]) -> list[Column[Any]]:
    """Return the columns that store a record; see `reelabel.record`."""
    return [
        Column(each.name, _INTEGERS[each.bits] if each.type is int else _TYPES[each.type])
        for each in columns_of(record)
    ]


SPEC = Table(
    "spec",
    METADATA,
    Column("spec_id", Text, primary_key=True),
    Column("body", JSONB, nullable=False),
    Column("created_at", DateTime(timezone=True)),
)

RUN = Table(
    "run",
    METADATA,
    Column("run_id", Uuid, primary_key=True),
    *(Column(name, Text) for name in ("dataset", "spec_id", "manifest_uri", "native_sampler")),
    *(Column(name, Text) for name in ("kind", "state", "message")),
    *(Column(name, BigInteger) for name in ("jobs_total", "jobs_rejected", "jobs_skipped")),
    *(Column(name, BigInteger) for name in ("jobs_labelled", "jobs_failed")),
    *(Column(name, BigInteger) for name in ("videos_extracted", "videos_cached", "videos_remade")),
    *(Column(name, BigInteger) for name in ("shards_total", "shards_done")),
    Column("stage_ms", JSONB),
    Column("versions", JSONB),
    Column("host", Text),
    Column("process", Text),
    Column("started_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
    Column("wall_ms", JSONB),
    *(Column(name, BigInteger) for name in ("engines", "gpus", "prompt_tokens", "cached_tokens")),
    *(Column(name, Double) for name in ("jobs_per_s", "jobs_per_hour_held")),
    Column("bottleneck", Text),
    Column("seen_at", DateTime(timezone=True)),
    Column("coverage", JSONB),
    Column("reference_at", DateTime(timezone=True)),
)

RUN_SPEC = Table(
    "run_spec",
    METADATA,
    Column("run_id", Uuid, primary_key=True),
    Column("spec_id", Text, primary_key=True),
)

RESULT = Table(
    "result",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("dataset", "job_id", "spec_id")),
    *(Column(name, Text) for name in ("job_digest", "answer", "task", "subtask", "label")),
    *record_columns(Answer),
    Column("probabilities", ARRAY(Double)),
    *(Column(name, Double) for name in ("margin", "entropy_nats")),
    *record_columns(OrderBias),
    *record_columns(FrameProvenance),
    Column("routed_by", Text),
    *record_columns(FirstAnswer),
    *record_columns(ChunkCounts),
    Column("run_id", Uuid),
    Column("shard_index", Integer),
    Column("fence", BigInteger),
    Column("model", Text),
    Column("versions", JSONB),
    Column("host", Text),
    Column("created_at", DateTime(timezone=True)),
)

# What is kept of a replaced label.
_HISTORY = (
    *("dataset", "job_id", "spec_id", "job_digest", "source_fingerprint", "task", "label"),
    *("probabilities", "margin", "model", "run_id", "created_at"),
)
RESULT_HISTORY = Table(
    "result_history",
    METADATA,
    Column("history_id", BigInteger, primary_key=True),
    *(Column(name, RESULT.c[name].type) for name in _HISTORY),
    Column("replaced_by", Uuid),
    Column("replaced_at", DateTime(timezone=True)),
)

ROUTE = Table(
    "route",
    METADATA,
    Column("spec_id", Text, primary_key=True),
    Column("escalate_below", Double),
    *(Column(name, Text) for name in ("dataset", "manifest_uri", "first_spec_id", "dense_spec_id")),
    Column("jobs", BigInteger),
    *(
        Column(name, Double)
        for name in ("target", "loss_at_most", "accuracy", "first_accuracy", "dense_accuracy", "asked_again")
    ),
    *(Column(name, BigInteger) for name in ("frames_decoded", "first_frames", "dense_frames")),
    Column("created_at", DateTime(timezone=True)),
)

CALIBRATION = Table(
    "calibration",
    METADATA,
    Column("spec_id", Text, primary_key=True),
    *(Column(name, Double) for name in ("temperature", "temperature_low", "temperature_high")),
    Column("run_id", Uuid),
    *(Column(name, Text) for name in ("dataset", "manifest_uri")),
    *(Column(name, BigInteger) for name in ("jobs", "wrong")),
    *(Column(name, Double) for name in ("accuracy", "confidence_before", "confidence_after")),
    *(Column(name, Double) for name in ("ece_before", "ece_after", "nll_before", "nll_after")),
    *(Column(name, Double) for name in ("nll_change_low", "nll_change_high")),
    Column("bins", SmallInteger),
    Column("created_at", DateTime(timezone=True)),
)

EVALUATION = Table(
    "evaluation",
    METADATA,
    Column("evaluation_id", Uuid, primary_key=True),
    *(Column(name, Text) for name in ("dataset", "manifest_uri")),
    Column("body", JSONB),
    Column("created_at", DateTime(timezone=True)),
)

FAILURE = Table(
    "failure",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("dataset", "job_id", "spec_id")),
    *(Column(name, Text) for name in ("job_digest", "source_fingerprint", "stage", "code", "message")),
    Column("attempts", Integer),
    *record_columns(ChunkCounts),
    Column("run_id", Uuid),
    Column("shard_index", Integer),
    *(Column(name, Text) for name in ("host", "task", "subtask")),
    Column("created_at", DateTime(timezone=True)),
    Column("fence", BigInteger),
)

CHUNK = Table(
    "chunk",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("dataset", "job_id", "spec_id")),
    Column("chunk", Integer, primary_key=True),
    Column("job_digest", Text),
    *(Column(name, Double) for name in ("start_s", "end_s")),
    Column("label", Text),
    *record_columns(Answer),
    Column("probabilities", ARRAY(Double)),
    *(Column(name, Double) for name in ("margin", "entropy_nats")),
    *(Column(name, Text) for name in ("routed_by", "stage", "code", "message")),
    *record_columns(FrameProvenance),
    Column("run_id", Uuid),
    Column("shard_index", Integer),
    Column("fence", BigInteger),
    Column("host", Text),
    Column("created_at", DateTime(timezone=True)),
)

_CAPTION = (("caption", Text), ("caption_score", Double), ("caption_probability", Double))
DESCRIPTION = Table(
    "description",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("dataset", "job_id", "spec_id")),
    *(Column(name, Text) for name in ("job_digest", "video_uri", "source_fingerprint", "embedding_key")),
    Column("dimensions", Integer),
    *(Column(name, Text) for name in ("task", "subtask")),
    Column("duration_s", Double),
    Column("tags", JSONB),
    *(Column(name, kind) for name, kind in _CAPTION),
    Column("scenes", JSONB),
    Column("scene_changes", Integer),
    *(Column(name, Text) for name in ("scene_method", "scene_note")),
    *(Column(name, Integer) for name in ("chunks", "frames_used", "frame_pixels")),
    *(Column(name, Text) for name in ("decode_method", "decode_note")),
    *record_columns(DescriptionCost),
    Column("run_id", Uuid),
    Column("shard_index", Integer),
    Column("fence", BigInteger),
    Column("model", Text),
    Column("versions", JSONB),
    Column("host", Text),
    Column("created_at", DateTime(timezone=True)),
)

DESCRIPTION_CHUNK = Table(
    "description_chunk",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("dataset", "job_id", "spec_id")),
    Column("chunk", Integer, primary_key=True),
    *(Column(name, Double) for name in ("start_s", "end_s")),
    Column("frames_used", Integer),
    Column("tags", JSONB),
    *(Column(name, kind) for name, kind in _CAPTION),
    Column("changes", ARRAY(Double)),
)

PLAN = Table(
    "plan",
    METADATA,
    Column("plan_id", Uuid, primary_key=True),
    Column("run_id", Uuid),
    *(Column(name, Text) for name in ("dataset", "spec_id", "manifest_uri", "manifest_fingerprint", "kind")),
    Column("shared", Boolean),
    Column("plan_uri", Text),
    Column("shards", Integer),
    Column("jobs", BigInteger),
    Column("state", Text),
    Column("created_at", DateTime(timezone=True)),
    Column("ended_at", DateTime(timezone=True)),
)

SHARD = Table(
    "shard",
    METADATA,
    Column("plan_id", Uuid, primary_key=True),
    Column("shard_index", Integer, primary_key=True),
    Column("jobs", Integer),
    *(Column(name, Text) for name in ("state", "claimed_for", "holder")),
    Column("lease_until", DateTime(timezone=True)),
    Column("token", BigInteger),
    Column("attempts", SmallInteger),
    Column("message", Text),
    Column("report", JSONB),
)

ARRIVAL = Table(
    "arrival",
    METADATA,
    *(Column(name, Text, primary_key=True) for name in ("manifest_uri", "fingerprint")),
    Column("flow_run_id", Uuid),
    Column("created_at", DateTime(timezone=True)),
)

LIVE_SESSION = Table(
    "live_session",
    METADATA,
    Column("session_id", Uuid, primary_key=True),
    Column("model", Text),
    Column("config", JSONB),
    *(Column(name, DateTime(timezone=True)) for name in ("started_at", "seen_at", "ended_at")),
    Column("reason", Text),
    *(Column(f"frames_{name}", BigInteger) for name in ("received", "similar", "kept", "evicted", "lost")),
    Column("audio_s", Double),
    Column("versions", JSONB),
    Column("host", Text),
)

LIVE_FRAMES = Table(
    "live_frames",
    METADATA,
    Column("session_id", Uuid, primary_key=True),
    Column("part", Integer, primary_key=True),
    Column("key", Text),
    Column("first_frame", BigInteger),
    Column("frames", Integer),
    *(Column(name, Double) for name in ("first_s", "last_s")),
    Column("bytes", BigInteger),
)

LIVE_QUERY = Table(
    "live_query",
    METADATA,
    Column("session_id", Uuid, primary_key=True),
    Column("query", Integer, primary_key=True),
    Column("question", Text),
    Column("choices", ARRAY(Text)),
    Column("answer", Text),
    Column("choice_index", SmallInteger),
    Column("probabilities", ARRAY(Double)),
    Column("margin", Double),
    *(Column(name, Text) for name in ("code", "message")),
    Column("asked_s", Double),
    Column("frames", ARRAY(Integer)),
    *(Column(name, Double) for name in ("last_frame_s", "audio_s")),
    *(Column(name, Integer) for name in ("prompt_tokens", "cached_tokens", "output_tokens")),
    *(Column(name, Double) for name in ("first_token_ms", "total_ms")),
    Column("model", Text),
    Column("created_at", DateTime(timezone=True)),
)
