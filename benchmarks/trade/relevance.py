"""Compares `relevant` with other samplers on clips a twentieth of which answers the question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from benchmarks.embedding import tiny_embedder
from benchmarks.harness import Column, Table
from benchmarks.trade.inference import SpecRunner, decode_pool, engine_of, jobs_of
from benchmarks.trade.report import share_cell, signed_cell
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec
from tasks.domain.passes import with_times
from tasks.evaluation.significance import paired_difference, proportion
from tasks.model.identity import TINY_MODEL, read_model_info
from tasks.relevance import choose_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tasks.description.embeddings import Embeddings
    from tasks.domain import Job
    from tasks.embedding.video import VideoEmbedder

COUNTS = (4, 8, 16)
BASELINE, RELEVANT = "uniform", "relevant"
_SAMPLERS: dict[str, Callable[[int], dict[str, Any]]] = {
    BASELINE: lambda count: {"sampler": "uniform", "num_frames": count},
    "keyframes": lambda count: {"sampler": "keyframes", "num_frames": count},
    # The demo model's native sampler, two frames a second, as its processor limits them.
    "native": lambda count: {"sampler": "qwen2_vl", "min_frames": 4, "max_frames": count},
    RELEVANT: lambda count: {"sampler": "relevant", "num_frames": count},
}

_COLUMNS = (
    Column("sampler", "sampler"),
    Column("frames", "count"),
    Column("accuracy, with 95% interval", lambda row: share_cell(row["accuracy"])),
    Column(f"minus {BASELINE}", lambda row: signed_cell(row["difference"]) if row["difference"] else None),
    Column("clips that show it", lambda row: share_cell(row["found"])),
    Column("frames of it", "frames", ".1f"),
    Column("decoded a clip", "decoded", ",.0f"),
)


def measure_relevance(manifest: pl.DataFrame, *, folder: Path, on_progress: Callable[[str], None]) -> list[Table]:
    """Embed the clips of `benchmarks.trade.brief`, choose among their frames, and ask about them."""
    model_info, jobs = read_model_info(str(TINY_MODEL)), jobs_of(manifest)
    with decode_pool() as pool:
        on_progress(f"Embedding frames of {len(jobs):,} clips")
        with tiny_embedder(pool, folder) as embedder:
            clips, decoded = _embed(embedder, jobs)
            texts = {job.job_id: embedder.frames.encoder.embed_texts(job.texts).vectors for job in jobs}
        on_progress("Loading the model")
        with engine_of(model_info, folder / "engine.log") as engine:
            runner, rows = SpecRunner(engine=engine, pool=pool), {}
            for sampler, options_of in _SAMPLERS.items():
                for count in COUNTS:
                    on_progress(f"Answering {len(jobs):,} questions with {count} frames of {sampler}")
                    sampling = Sampling(max_pixels=SIDE_PX**2, size_multiple_px=28, **options_of(count))
                    spec = RunSpec(model=model_info.identity, sampling=sampling)
                    samplings = _chosen(manifest, clips, texts, sampling) if sampler == RELEVANT else None
                    rows[sampler, count] = runner.run(jobs, spec, samplings=samplings).rows
    title = f"{len(jobs):,} clips of a minute, three seconds of which answer the question"
    return [Table(title, list(_score(manifest, rows, decoded)), _COLUMNS)]


def _embed(embedder: VideoEmbedder, jobs: Sequence[Job]) -> tuple[dict[str, Embeddings], float]:
    """Return the embeddings of each job's clip, and the mean number of frames decoded for them."""
    found = {job.job_id: embedder.embed_segment(job.video_uri, WHOLE) for job in jobs}
    decoded = float(np.mean([each.cost.frames_decoded for each in found.values()]))
    return {job_id: each.embeddings for job_id, each in found.items()}, decoded


def _chosen(
    manifest: pl.DataFrame,
    clips: Mapping[str, Embeddings],
    texts: Mapping[str, npt.NDArray[np.float32]],
    sampling: Sampling,
) -> dict[str, Sampling]:
    """Return the sampling of each job, as a run chooses it."""
    return {
        job_id: with_times(sampling, choose_frames(clips[job_id], texts[job_id], sampling.num_frames)[0])
        for job_id in manifest["job_id"]
    }


def _hits(jobs: pl.DataFrame, times_ms: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    """Return how many of each job's frames show what it asks about."""
    return np.array(
        [
            ((np.asarray(times_ms[job_id]) >= start_ms) & (np.asarray(times_ms[job_id]) < end_ms)).sum()
            for job_id, start_ms, end_ms in jobs.select("job_id", "start_ms", "end_ms").iter_rows()
        ]
    )


def _score(
    manifest: pl.DataFrame, rows: Mapping[tuple[str, int], pl.DataFrame], embedded: float
) -> Iterator[dict[str, Any]]:
    for (sampler, count), each in rows.items():
        hits = _hits(manifest, dict(each.select("job_id", "times_ms").iter_rows()))
        right = _right(manifest, each)
        yield {
            "sampler": sampler,
            "count": count,
            "accuracy": proportion(int(right.sum()), len(right)),
            "difference": None
            if sampler == BASELINE
            else paired_difference(right, _right(manifest, rows[BASELINE, count])),
            "found": proportion(int((hits > 0).sum()), len(hits)),
            "frames": float(hits.mean()),
            "decoded": float(each["frames_decoded"].to_numpy().mean()) + (embedded if sampler == RELEVANT else 0.0),
        }


def _right(manifest: pl.DataFrame, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    judged = manifest.join(rows, on="job_id", maintain_order="left")
    return judged.select(pl.col("label") == pl.col("answer")).to_series().to_numpy()
