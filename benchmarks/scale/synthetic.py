"""Synthetic manifests and results of any number of jobs."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING
from uuid import UUID

import polars as pl
import pyarrow as pa
from pyarrow import parquet
from sqlalchemy import text

from infra.database.connect import connected
from tasks.database.temp_table import temp_job_table
from tasks.domain import DescribeSpec, ModelIdentity, RunSpec
from tasks.results.runs import open_run
from tasks.results.write import RunKey

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, TextClause

    from infra.settings import DatabaseSettings
    from tasks.domain import Spec
    from tasks.manifest.table import JobTable

DATASET = "scale"
SPEC = RunSpec(model=ModelIdentity(name="made-up"))
DESCRIBE_SPEC = DescribeSpec(
    model=SPEC.model,
    sampler="dense",
    seconds_per_chunk=10.0,
    frames_per_chunk=16,
    tags="made-up",
    captions="made-up",
    scene_threshold=10.0,
)
RUN = RunKey(run_id=UUID(int=1), dataset=DATASET, spec_id=SPEC.spec_id, host="machine-1")
_TABLES = "reelabel.result, reelabel.failure, reelabel.description, reelabel.description_chunk"
_KEYS = text(
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE conrelid = ANY(CAST(:tables AS regclass[])) AND contype IN ('f', 'p') ORDER BY contype"
)
_INDEXES = text(
    "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
    " WHERE indrelid = ANY(CAST(:tables AS regclass[])) AND NOT indisprimary"
)
_CHUNK_ROWS = 500_000
# Coprime to the usual numbers of rows, so that the two jobs of a video are far apart.
_STEP = 7_368_787
_LABELLED = text(
    "INSERT INTO reelabel.result (dataset, job_id, spec_id, job_digest, source_fingerprint, label, choice_index,"
    " probabilities, margin, entropy_nats, keyframes_in_file, frames_used, prompt_tokens, cached_tokens, fetch_ms,"
    " decode_ms, cache_write_ms, cache_read_ms, preprocess_ms, inference_ms, embed_ms, permutations, run_id,"
    " shard_index, host, task, decode_method) "
    "SELECT :dataset, job_id, :spec_id, CASE WHEN row % 10000 = 7 THEN 'older' ELSE job_digest END,"
    " 'etag-' || md5(left(job_id, -3)) || '-1234567', 'picks it up', 0, '{0.5,0.25,0.125,0.125}', 0.25, 1.21, 30, 16,"
    " 1071, 1024, 1.5, 30.5, 2.5, 1.25, 9.5, 10.5, 0, 1, :run_id, row / 100,"
    " 'machine-1', task, 'index' FROM manifest_jobs WHERE row % 1000 > 10 OR row % 1000 = 7"
)
_TAGS = ", ".join(f'{{"text": "place {n}", "score": 0.0{8 - n}437286913394928, "probability": 0.01}}' for n in range(5))
_DESCRIBED = text(
    "INSERT INTO reelabel.description (dataset, job_id, spec_id, job_digest, video_uri, source_fingerprint,"
    " embedding_key, dimensions, duration_s, tags, caption, caption_score, caption_probability, scenes, scene_changes,"
    " scene_method, chunks, frames_used, task, decode_method, decode_note, frames_decoded, frames_embedded,"
    " bytes_fetched, fetch_ms, decode_ms, cache_write_ms, cache_read_ms, embed_ms, scenes_ms, describe_ms, run_id,"
    " shard_index, host) "
    "SELECT :dataset, job_id, :spec_id, CASE WHEN row % 10000 = 7 THEN 'older' ELSE job_digest END,"
    " 's3://footage/' || job_id || '.mp4', 'etag-' || md5(job_id) || '-1234567',"
    " 'v1/' || left(md5(job_id), 2) || '/' || md5(job_id) || '.arrow', 768, 10, CAST(:tags AS jsonb),"
    ' \'people walk along a street\', 0.101, 0.02, \'[{"start_s": 0.0, "end_s": 10.0, "shots": 1}]\', 0,'
    " 'index and ema', 1, 16, task, 'index', '', 16, 16, 1234567, 1.5, 30.5, 2.5, 1.25, 450.5, 10.5, 1.5, :run_id,"
    " row / 100, 'machine-1'"
    " FROM manifest_jobs WHERE row % 1000 > 10 OR row % 1000 = 7"
)
_CHUNKS = text(
    "INSERT INTO reelabel.description_chunk (dataset, job_id, spec_id, chunk, start_s, end_s, frames_used, tags,"
    " caption, caption_score, caption_probability, changes) "
    "SELECT dataset, job_id, spec_id, 0, 0, duration_s, frames_used, tags, caption, caption_score,"
    " caption_probability, '{}' FROM reelabel.description"
)
_FAILED = text(
    "INSERT INTO reelabel.failure (dataset, job_id, spec_id, job_digest, source_fingerprint, stage, code, message,"
    " run_id, shard_index, host, task) "
    "SELECT :dataset, job_id, :spec_id, job_digest, 'etag-' || md5(left(job_id, -3)) || '-1234567', 'decode',"
    " 'no_keyframes', 'No frame of the video can be decoded.', :run_id, row / 100, 'machine-1', task"
    " FROM manifest_jobs WHERE row % 1000 BETWEEN 1 AND 10 AND row % 1000 <> 7 OR row % 10000 = 11"
)
_ORPHANED = text(
    "INSERT INTO reelabel.failure (dataset, job_id, spec_id, job_digest, stage, code, message, run_id,"
    " shard_index, host) "
    "SELECT :dataset, 'gone-' || row, :spec_id, job_digest, 'fetch', 'video_missing', 'It is gone.', :run_id, 0, 'm'"
    " FROM manifest_jobs WHERE row % 1000 = 3"
)


def write_manifest(path: Path, rows: int, *, per_video: int = 2) -> None:
    """Write a manifest with so many questions on each video, in scattered order."""
    with parquet.ParquetWriter(path, _jobs(0, 1, rows, per_video).schema) as file:
        for start in range(0, rows, _CHUNK_ROWS):
            file.write_table(_jobs(start, min(start + _CHUNK_ROWS, rows), rows, per_video))


def write_videos(path: Path, count: int) -> None:
    """Write a manifest without questions, of so many videos in scattered order."""
    with parquet.ParquetWriter(path, _videos(0, 1, count).schema) as file:
        for start in range(0, count, _CHUNK_ROWS):
            file.write_table(_videos(start, min(start + _CHUNK_ROWS, count), count))


def write_ids(path: Path, manifest: Path, *, every: int) -> None:
    """Write every n-th id of a manifest, one per line."""
    ids = pl.scan_parquet(manifest).select(pl.col("job_id").gather_every(every))
    ids.sink_csv(path, include_header=False)


def fill_results(settings: DatabaseSettings, jobs: JobTable) -> dict[str, int]:
    """Write a label for most jobs of a manifest, and failures, stale rows and gaps for some.

    Returns:
        Counts that an audit must find.
    """
    _fill(settings, jobs, SPEC, (_LABELLED, {}), (_FAILED, {}), (_ORPHANED, {}))
    return _expected(jobs)


def fill_descriptions(settings: DatabaseSettings, jobs: JobTable) -> dict[str, int]:
    """Write a description of one chunk for most videos of a manifest, and the rest as `fill_results` does.

    Returns:
        Counts that an audit must find.
    """
    described = {"tags": f"[{_TAGS}]"}
    _fill(
        settings,
        jobs,
        DESCRIBE_SPEC,
        (_DESCRIBED, described),
        (_CHUNKS, {}),
        (_FAILED, {}),
        (_ORPHANED, {}),
        in_bulk=("reelabel.description", "reelabel.description_chunk"),
    )
    return _expected(jobs)


def _fill(
    settings: DatabaseSettings,
    jobs: JobTable,
    spec: Spec,
    *statements: tuple[TextClause, dict[str, str]],
    in_bulk: Sequence[str] = (),
) -> None:
    key = {"dataset": DATASET, "spec_id": spec.spec_id, "run_id": RUN.run_id}
    with connected(settings) as engine:
        with (
            temp_job_table(engine, jobs.parts()) as connection,
            _in_bulk(connection, in_bulk) if in_bulk else nullcontext(),
        ):
            for statement, values in statements:
                connection.execute(statement, key | values)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            # Autovacuum would do so within a minute.
            connection.execute(text(f"VACUUM ANALYZE {_TABLES}"))


@contextmanager
def _in_bulk(connection: Connection, tables: Sequence[str]) -> Iterator[None]:
    """Fill tables that are only read afterwards: without their keys and indexes, which are made at last, and a log."""
    keys = connection.execute(_KEYS, {"tables": list(tables)}).all()
    indexes = connection.execute(_INDEXES, {"tables": list(tables)}).all()
    connection.execute(text("SET LOCAL maintenance_work_mem = '512MB'"))
    for table, name, _ in keys:  # foreign ones first
        connection.execute(text(f"ALTER TABLE {table} DROP CONSTRAINT {name}"))
    for name, _ in indexes:
        connection.execute(text(f"DROP INDEX {name}"))
    for table in tables:
        connection.execute(text(f"ALTER TABLE {table} SET UNLOGGED"))
    yield
    for table, name, definition in reversed(keys):
        connection.execute(text(f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"))
    for _, definition in indexes:
        connection.execute(text(definition))


def _expected(jobs: JobTable) -> dict[str, int]:
    row = pl.int_range(jobs.rows, eager=True)
    place = row % 1000
    return {
        "missing": int((place == 0).sum()),
        "failures": int((place.is_between(1, 10) & (place != 7)).sum()),  # noqa: PLR2004 - as in SQL above
        "doubled": int((row % 10_000 == 11).sum()),  # noqa: PLR2004
        "stale": int((row % 10_000 == 7).sum()),  # noqa: PLR2004
        "orphaned": int((place == 3).sum()),  # noqa: PLR2004
    }


def count_bytes(settings: DatabaseSettings) -> int:
    """Return the bytes that the tables of descriptions take, with their indexes."""
    size = "pg_total_relation_size('reelabel.description') + pg_total_relation_size('reelabel.description_chunk')"
    with connected(settings) as engine, engine.connect() as connection:
        size_bytes: int = connection.execute(text(f"SELECT {size}")).scalar_one()
    return size_bytes


def begin_run(settings: DatabaseSettings, spec: Spec = SPEC) -> None:
    """Insert the run that all rows belong to."""
    facts = {"dataset": DATASET, "manifest_uri": "made-up.parquet", "kind": "classify", "host": RUN.host}
    with connected(settings) as engine:
        open_run(engine, run_id=RUN.run_id, spec=spec, facts=facts | {"jobs_total": 0, "jobs_skipped": 0})


def fingerprints_of(uris: Sequence[str]) -> list[str]:
    """Return the fingerprints of the rows, in place of a store."""
    names = (uri.rpartition("/")[2].removesuffix(".mp4") for uri in uris)
    return [f"etag-{hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()}-1234567" for name in names]


def _jobs(start: int, stop: int, rows: int, per_video: int) -> pa.Table:
    number = pl.int_range(start, stop, eager=True, dtype=pl.Int64).alias("number") * _STEP % rows
    pair, video = (pl.col("number") // 2).cast(pl.String).str.zfill(9), pl.col("number") // per_video
    is_first = pl.col("number") % 2 == 0
    frame = number.to_frame().select(
        job_id=pl.format("clip-{}-q{}", pair, pl.col("number") % 2),
        video_uri=pl.format("s3://footage/day-{}/clip-{}.mp4", video % 365, video.cast(pl.String).str.zfill(9)),
        prompt=pl.when(is_first)
        .then(pl.lit("What does the person in the video do with the object?"))
        .otherwise(pl.lit("Where does the scene take place, as far as can be seen?")),
        choices=pl.when(is_first)
        .then(pl.lit(["picks it up", "puts it down", "throws it", "none of these"]))
        .otherwise(pl.lit(["in a kitchen", "outdoors", "in an office"])),
        task=pl.when(is_first).then(pl.lit("action")).otherwise(pl.lit("place")),
    )
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _videos(start: int, stop: int, count: int) -> pa.Table:
    number = pl.int_range(start, stop, eager=True, dtype=pl.Int64).alias("number") * _STEP % count
    name = pl.format("clip-{}", pl.col("number").cast(pl.String).str.zfill(9))
    frame = number.to_frame().select(
        job_id=name,
        video_uri=pl.format("s3://footage/day-{}/{}.mp4", pl.col("number") % 365, name),
        task=pl.lit("footage"),
    )
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())
