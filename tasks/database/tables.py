"""The tables: columns, constraints and indexes, which the first migration creates.

`python -m tools.reference` writes the tables of docs/results.md from the comments of the columns.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    DDL,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    Sequence,
    SmallInteger,
    Table,
    Text,
    Uuid,
    create_mock_engine,
    event,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from tasks.database import live_tables  # noqa: F401 - tables of the same schema
from tasks.database.columns import (
    METADATA,
    TIME,
    by_run,
    checks,
    digest,
    job_key,
    nullable,
    packed,
    probabilities,
    record_columns,
    required,
    routed_by,
    task_names,
    times,
    written,
)
from tasks.description.cost import DescriptionCost
from tasks.domain import Answer, ChunkCounts, FirstAnswer, OrderBias, Words
from tasks.domain.provenance import FrameProvenance
from tasks.domain.record import names_of

_STAGE = "Where the job failed: `fetch`, `decode`, `cache`, `prompt` or `inference`."
_MESSAGE = "What is wrong, and what to do."
_RUN_KINDS = "kind IN ('classify', 'describe', 'backfill')"


def _spec(name: str = "spec_id", comment: str | None = None) -> Column[Any]:
    return Column(name, Text, ForeignKey("reelabel.spec.spec_id"), nullable=False, comment=comment)


SPEC = Table(
    "spec",
    METADATA,
    Column("spec_id", Text, primary_key=True),
    *required(JSONB, "body"),
    *times("created_at"),
    comment="Everything on the run's side that can change an answer.",
)

RUN = Table(
    "run",
    METADATA,
    Column("run_id", Uuid, primary_key=True, comment="Id of the run."),
    *required(Text, dataset="Dataset of the run."),
    _spec(comment="Spec of the run; `reelabel.run_spec` lists all, if it was restarted with another."),
    *required(Text, manifest_uri="URI of the manifest."),
    *required(Text, native_sampler="Sampler that the model was trained with; empty if unknown.", default="''"),
    *required(Text, kind="`classify`, `describe` or `backfill`."),
    *required(Text, state="`running`, `done`, `failed`, `cancelled` or `lost`."),
    *required(Text, message="Reason for the state, or a warning.", default="''"),
    *required(BigInteger, jobs_total="Jobs of the manifest or selection."),
    *required(BigInteger, jobs_rejected="Rejected rows of the manifest.", default="0"),
    *required(BigInteger, jobs_skipped="Jobs that were already finished."),
    *required(
        BigInteger,
        default="0",
        jobs_labelled="Jobs with a label, text, data or a description.",
        jobs_failed="Jobs that failed.",
        videos_extracted="Videos that were decoded.",
        videos_cached="Videos found in the cache.",
        videos_rewritten="Videos decoded again because their cached file could not be used.",
        shards_total="Shards of the plan.",
        shards_done="Finished shards of the plan.",
    ),
    *required(
        JSONB,
        default="'{}'",
        stage_ms="Milliseconds of work by stage, summed over videos and jobs.",
        versions="Versions of Reelabel and of its dependencies, and settings of the engine.",
    ),
    *required(Text, host="Machine on which the run was started."),
    *nullable(Text, process="Process of the run, to detect that it was killed."),
    *times(started_at="When the run started, including its setup."),
    *nullable(TIME, ended_at="When the run ended; null while it is running."),
    *nullable(
        JSONB,
        wall_ms=(
            "Milliseconds of wall-clock time by what the engine did or waited for; the parts add up to the total."
        ),
    ),
    *required(BigInteger, engines="Engines that answered.", default="1"),
    *nullable(
        BigInteger,
        gpus="GPUs of these engines.",
        prompt_tokens="Tokens of all prompts.",
        cached_tokens="Prompt tokens served from the prefix cache.",
    ),
    *nullable(
        Double,
        jobs_per_s="Jobs per second while the engine was loaded.",
        jobs_per_hour_held="Jobs per GPU-hour held, or per engine-hour on CPUs; the start of the engine is included.",
        gpu_hours="GPU-hours from the start of the engines to their end.",
        cpu_hours="Core-hours of processes that fetched and decoded videos, and of engines without a GPU.",
        cost=(
            "Cost of these hours, by the prices in `[cost]`; null without prices. Runs that share a "
            "plan on remote workers are each charged for all shards that they waited for."
        ),
    ),
    *nullable(Text, bottleneck="What limits the run's speed."),
    *times(seen_at="Last heartbeat of the run."),
    *required(
        JSONB,
        coverage=(
            "Number of videos answered from keyframes (`videos`), and of those to which each coverage reason applies."
        ),
        default="'{}'",
    ),
    *nullable(
        TIME,
        reference_at="When the run was marked as the reference of its manifest; null if it was not.",
        exported_at="When the run's rows were written to `results.export_uri`; null if they were not.",
    ),
    *checks(_RUN_KINDS, "state IN ('running', 'done', 'failed', 'cancelled', 'lost')", "engines > 0"),
    *checks(*(f"{name} >= 0" for name in ("jobs_total", "jobs_rejected", "jobs_skipped"))),
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
    *job_key(),
    *digest(),
    *nullable(Text, answer="Known answer in the manifest; null if it has none."),
    *task_names(),
    *nullable(Text, label="The choice with the highest probability; null for an answer in words."),
    *packed(
        *record_columns(Words),
        *probabilities(),
        *record_columns(Answer, required={*names_of(Answer)} - {"choice_index", "choice_mass"}),
        *record_columns(OrderBias, required=["permutations"]),
        *record_columns(FrameProvenance, required=["source_fingerprint", "frames_used", *_FRAME_TIMES]),
        *routed_by(),
        *nullable(
            Text,
            copied_from="Job whose answer was copied, because its video is a near-duplicate; null for all others.",
        ),
        *record_columns(FirstAnswer),
        *record_columns(ChunkCounts),
        *written(),
    ),
    by_run(),
    *checks("choice_index >= 0", "margin BETWEEN 0 AND 1", "entropy_nats >= 0", "choice_mass BETWEEN 0 AND 1"),
    *checks("chunks > 0", "chunks_answered BETWEEN 1 AND chunks", "frames_decoded >= 0", "bytes_fetched >= 0"),
    *checks("choice_index < array_length(probabilities, 1)", "num_nonnulls(label, text, data) = 1"),
    *checks(*(f"(label IS NULL) = ({name} IS NULL)" for name in ("choice_index", "probabilities", "margin"))),
    *checks("finish_reason IN ('stop', 'length')", "(label IS NULL) = (finish_reason IS NOT NULL)"),
    Index("result_by_run", "run_id"),
    comment="Labels, and answers in words to jobs without choices. fence is the token of the lease under which the row "
    "was written: an older lease never overwrites the rows of a newer one. first_label and first_margin are those of "
    "the first pass, before escalation to a dense sampler.",
)

# Columns of a label that are kept when it is replaced.
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
    *(*required(Uuid, "replaced_by"), *times("replaced_at")),
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
    *required(Double, "escalate_below"),
    *(*required(Text, "dataset", "manifest_uri"), _spec("first_spec_id"), _spec("dense_spec_id")),
    *required(BigInteger, "jobs"),
    *required(Double, "target", "loss_at_most", "accuracy", "first_accuracy", "dense_accuracy", "asked_again"),
    *required(BigInteger, "frames_decoded", "first_frames", "dense_frames"),
    *times("created_at"),
    *checks("escalate_below >= 0", "jobs > 0"),
    comment="The margin below which a job is escalated to a dense sampler: one per spec, proven on known answers, with "
    "its effect on them.",
)

CALIBRATION = Table(
    "calibration",
    METADATA,
    Column("spec_id", Text, ForeignKey("reelabel.spec.spec_id"), primary_key=True),
    *required(Double, "temperature", "temperature_low", "temperature_high"),
    *required(Uuid, "run_id"),
    *required(Text, "dataset", "manifest_uri"),
    *required(BigInteger, "jobs", "wrong"),
    *required(Double, "accuracy", "confidence_before", "confidence_after"),
    *required(Double, "ece_before", "ece_after", "nll_before", "nll_after", "nll_change_low", "nll_change_high"),
    *required(SmallInteger, "bins"),
    *times("created_at"),
    *checks("temperature > 0", "jobs > 0", "wrong > 0"),
    comment="One temperature per spec, fitted on known answers, with its effect on held-out jobs. Results keep the raw "
    "probabilities of the model.",
)

EVALUATION = Table(
    "evaluation",
    METADATA,
    Column("evaluation_id", Uuid, primary_key=True),
    *required(Text, "dataset", "manifest_uri"),
    *required(JSONB, "body"),
    *times("created_at"),
    Index("evaluation_by_dataset", "dataset", "created_at"),
    comment="Comparisons of several specs on known answers, each as one document: accuracies, differences, costs.",
)

FAILURE = Table(
    "failure",
    METADATA,
    *job_key(),
    *digest(),
    *nullable(Text, source_fingerprint="Version of the video; null if it could not be reached."),
    *required(
        Text,
        stage=_STAGE,
        code="Stable code of the failure.",
        message=_MESSAGE,
    ),
    *required(Integer, attempts="Number of consecutive failures of the job, from 1.", default="1"),
    *record_columns(ChunkCounts),
    *task_names(),
    *written(),
    by_run(),
    *checks("attempts >= 1", "chunks > 0", "chunks_answered BETWEEN 0 AND chunks"),
    Index("failure_by_run", "run_id"),
    comment="The jobs that have no label, and why.",
)

CHUNK = Table(
    "chunk",
    METADATA,
    *job_key(),
    Column("chunk", Integer, primary_key=True, comment="Number of the chunk, from 0."),
    *digest(),
    *nullable(Text, label="The choice with the highest probability; null if the chunk failed."),
    *packed(
        *nullable(
            Double,
            start_s="Start of the chunk in seconds; null for the start of the video.",
            end_s="End of the chunk in seconds; null for the end of the video.",
        ),
        *probabilities(),
        *nullable(
            Text,
            stage=_STAGE,
            code="Stable code of the failure; null if the chunk has a label.",
            message=_MESSAGE,
        ),
        *record_columns(Answer),
        *record_columns(OrderBias),
        *routed_by(),
        *record_columns(FrameProvenance),
        *written(),
    ),
    by_run(),
    *checks("chunk >= 0", "choice_index >= 0", "margin BETWEEN 0 AND 1", "(label IS NULL) <> (code IS NULL)"),
    Index("chunk_by_run", "run_id"),
    comment="The chunks that a job's label or failure follows from, each with a label of its own, or with the reason "
    "why it has none. They are all written and replaced together with the row of their job, also those whose answers "
    "an earlier run had: run_id and fence are those of the row of the job.",
)

_CAPTION = ("caption_score", "caption_probability")
DESCRIPTION = Table(
    "description",
    METADATA,
    *job_key(),
    *digest(),
    *required(Text, "video_uri", "source_fingerprint", "embedding_key"),
    *required(Integer, "dimensions"),
    *task_names(),
    *(
        *required(Double, "duration_s"),
        *required(JSONB, "tags"),
        *nullable(Text, "caption"),
        *nullable(Double, *_CAPTION),
    ),
    *(*required(JSONB, "scenes"), *required(Integer, "scene_changes")),
    *(*required(Text, "scene_method"), *required(Text, "scene_note", default="''")),
    *(*required(Integer, "chunks", "frames_used"), *required(Integer, "frame_pixels", default="0")),
    *nullable(Text, "decode_method", "decode_note"),
    *record_columns(DescriptionCost, required=names_of(DescriptionCost)),
    *written(),
    by_run(),
    *checks("dimensions > 0", "duration_s >= 0", "scene_changes >= 0", "chunks > 0"),
    *checks("(caption IS NULL) = (caption_score IS NULL)"),
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
    *job_key(),
    Column("chunk", Integer, primary_key=True),
    *required(Double, "start_s", "end_s"),
    *required(Integer, "frames_used"),
    *(*required(JSONB, "tags"), *nullable(Text, "caption"), *nullable(Double, *_CAPTION), *required(JSONB, "changes")),
    ForeignKeyConstraint(
        ["dataset", "job_id", "spec_id"],
        [f"reelabel.description.{name}" for name in ("dataset", "job_id", "spec_id")],
        ondelete="CASCADE",
    ),
    *checks("chunk >= 0"),
    comment="The chunks of a described video. changes is a list of objects with time_s, score, frame, which counts the "
    "chunk's sampled frames, and kind: cut, gradual or sampled. A chunk without frames has no tags and no caption.",
)

# Tokens of leases. One sequence for all plans: of any two leases, the one with the greater token is newer.
FENCE = Sequence("fence", metadata=METADATA)

_IS_OPEN = text("state = 'open'")
PLAN = Table(
    "plan",
    METADATA,
    Column("plan_id", Uuid, primary_key=True),
    Column("run_id", Uuid, ForeignKey("reelabel.run.run_id", ondelete="CASCADE"), nullable=False),
    *(*required(Text, "dataset"), _spec(), *required(Text, "manifest_uri", "manifest_fingerprint", "kind")),
    *required(Boolean, "shared"),
    *required(Text, "plan_uri"),
    *(*required(Integer, "shards"), *required(BigInteger, "jobs")),
    *required(Text, "state", default="'open'"),
    *(*times("created_at"), *nullable(TIME, "ended_at")),
    *checks(_RUN_KINDS, "state IN ('open', 'done', 'dropped')", "shards > 0", "jobs > 0"),
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
    *required(Integer, "jobs"),
    *(*required(Text, "state", default="'planned'"), *nullable(Text, "claimed_for", "holder")),
    *(*nullable(TIME, "lease_until"), *nullable(BigInteger, "token")),
    *required(SmallInteger, "attempts", default="0"),
    *required(Text, "message", default="''"),
    *nullable(JSONB, "report"),
    *checks("jobs > 0", "state IN ('planned', 'extracted', 'done', 'failed')"),
    *checks("claimed_for IN ('extract', 'infer', 'both')"),
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
    *(Column(name, Text, primary_key=True) for name in ("manifest_uri", "fingerprint")),
    *required(Uuid, "flow_run_id"),
    *times("created_at"),
    comment="Manifests for which a run was started on arrival, so that each version is started once.",
)


def schema_sql() -> str:
    """Return the statements that create all tables, in a stable order."""
    statements: list[str] = []

    def note(ddl: Any, *_: object, **__: object) -> None:  # noqa: ANN401 - any of SQLAlchemy's statements
        statements.append(f"{ddl.compile(dialect=engine.dialect)};")

    engine = create_mock_engine("postgresql+psycopg://", note)
    METADATA.create_all(engine, checkfirst=False)
    # SQLAlchemy has the indexes of a table in a set.
    return "\n".join(sorted(statements))
