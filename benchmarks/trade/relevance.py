"""Compares `relevant` with other samplers on clips a twentieth of which answers the question."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from benchmarks.embedding import tiny_embedder
from benchmarks.harness import Column, Table
from benchmarks.trade.brief import BRIEF
from benchmarks.trade.inference import SpecRunner, decode_pool, engine_of, jobs_of
from benchmarks.trade.report import share_cell, signed_cell
from reelabel.sampling.options import Sampling
from reelabel.segment import WHOLE
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec
from tasks.domain.passes import with_times
from tasks.evaluation.significance import paired_difference, proportion
from tasks.model.identity import read_model_info
from tasks.relevance import choose_adaptively, choose_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from benchmarks.harness import Row
    from tasks.description.embeddings import Embeddings
    from tasks.domain import Job
    from tasks.embedding.encoder import Encoder
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
# What frames can be compared with, to find those that a question is about.
_TEXTS: dict[str, Callable[[Job], Sequence[str]]] = {
    "the question": lambda job: (job.prompt,),
    "each choice": lambda job: job.choices,
    "the question and all choices": lambda job: (" ".join((job.prompt, *job.choices)),),
    "each choice with the question": lambda job: job.texts,
}
_THRESHOLDS = (0.8, 0.5)


def _found_cell(at: int, row: Row) -> str:
    return f"{row['found'][at].value:.2f}, {row['frames'][at]:.1f}"


_SEEN = (
    Column("sampler", "sampler"),
    Column("frames", "count"),
    Column("accuracy, with 95% interval", lambda row: share_cell(row["accuracy"])),
    Column(f"minus {BASELINE}", lambda row: signed_cell(row["difference"]) if row["difference"] else None),
    Column("clips that show it", lambda row: share_cell(row["found"])),
    Column("frames of it", "frames", ".1f"),
    Column("decoded a clip", "decoded", ",.0f"),
)
_COMPARED = (
    Column("clips", "task"),
    Column("compared with", "texts"),
    Column("stands out by", "stands_out", "g"),
    *(Column(f"{count} frames", partial(_found_cell, at)) for at, count in enumerate(COUNTS)),
)


def relevance_tables(clips: int, seen: Sequence[Row], compared: Sequence[Row]) -> list[Table]:
    """Tabulate what each sampler shows, and what is found by comparing frames with other texts and thresholds."""
    title = f"{clips:,} clips of a minute, three seconds of which answer the question"
    others = "Clips that show it, and frames of it, by what frames are compared with"
    return [Table(title, seen, _SEEN), Table(others, compared, _COMPARED)]


def measure_relevance(
    manifest: pl.DataFrame, *, model: str, folder: Path, on_progress: Callable[[str], None]
) -> list[Table]:
    """Embed the clips of `benchmarks.trade.brief`, choose among their frames, and ask about those that can be."""
    model_info, asked = read_model_info(model), manifest.filter(task=BRIEF)
    with decode_pool() as pool:
        on_progress(f"Embedding frames of {manifest.height:,} clips")
        with tiny_embedder(pool, folder) as embedder:
            clips, decoded = _embed(embedder, manifest)
            texts = {name: _embed_texts(embedder.frames.encoder, manifest, of) for name, of in _TEXTS.items()}
        compared = list(_compare(manifest, clips, texts))
        on_progress("Loading the model")
        with engine_of(model_info, folder / "engine.log") as engine:
            runner, rows = SpecRunner(engine=engine, pool=pool), {}
            for sampler, options_of in _SAMPLERS.items():
                for count in COUNTS:
                    on_progress(f"Answering {asked.height:,} questions with {count} frames of {sampler}")
                    sampling = Sampling(max_pixels=SIDE_PX**2, size_multiple_px=28, **options_of(count))
                    spec = RunSpec(model=model_info.identity, sampling=sampling)
                    samplings = _chosen(asked, clips, texts, sampling) if sampler == RELEVANT else None
                    rows[sampler, count] = runner.run(jobs_of(asked), spec, samplings=samplings).rows
    return relevance_tables(asked.height, list(_score(asked, rows, decoded)), compared)


def _embed(embedder: VideoEmbedder, manifest: pl.DataFrame) -> tuple[dict[str, Embeddings], float]:
    """Return the embeddings of each job's clip, and the mean number of frames decoded for them."""
    found = {job.job_id: embedder.embed_segment(job.video_uri, WHOLE) for job in jobs_of(manifest)}
    decoded = float(np.mean([each.cost.frames_decoded for each in found.values()]))
    return {job_id: each.embeddings for job_id, each in found.items()}, decoded


def _embed_texts(
    encoder: Encoder, manifest: pl.DataFrame, texts_of: Callable[[Job], Sequence[str]]
) -> dict[str, npt.NDArray[np.float32]]:
    return {job.job_id: encoder.embed_texts(texts_of(job)).vectors for job in jobs_of(manifest)}


def _chosen(
    asked: pl.DataFrame,
    clips: Mapping[str, Embeddings],
    texts: Mapping[str, Mapping[str, npt.NDArray[np.float32]]],
    sampling: Sampling,
) -> dict[str, Sampling]:
    """Return the sampling of each job, as a run chooses it."""
    vectors = texts["each choice with the question"]
    return {
        job_id: with_times(sampling, choose_frames(clips[job_id], vectors[job_id], sampling.num_frames)[0])
        for job_id in asked["job_id"]
    }


def _compare(
    manifest: pl.DataFrame,
    clips: Mapping[str, Embeddings],
    texts: Mapping[str, Mapping[str, npt.NDArray[np.float32]]],
) -> Iterator[dict[str, Any]]:
    """Yield what is found, by texts and by how much the best frames must stand out.

    For each of COUNTS: the share of the clips of which at least one frame shows what is asked about, and the mean
    number of such frames.
    """
    for (task,), jobs in manifest.group_by("task", maintain_order=True):
        for name, vectors in texts.items():
            scores = {job_id: (clips[job_id].vectors @ vectors[job_id].T).max(axis=1) for job_id in jobs["job_id"]}
            for stands_out in _THRESHOLDS:
                shown = [
                    {
                        job_id: clips[job_id].pts_ms[choose_adaptively(each, count, stands_out=stands_out)]
                        for job_id, each in scores.items()
                    }
                    for count in COUNTS
                ]
                hits = [_hits(jobs, times_ms) for times_ms in shown]
                yield {
                    "task": str(task),
                    "texts": name,
                    "stands_out": stands_out,
                    "found": [proportion(int((each > 0).sum()), len(each)) for each in hits],
                    "frames": [float(each.mean()) for each in hits],
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
    asked: pl.DataFrame, rows: Mapping[tuple[str, int], pl.DataFrame], embedded: float
) -> Iterator[dict[str, Any]]:
    for (sampler, count), each in rows.items():
        hits = _hits(asked, dict(each.select("job_id", "times_ms").iter_rows()))
        right = _right(asked, each)
        yield {
            "sampler": sampler,
            "count": count,
            "accuracy": proportion(int(right.sum()), len(right)),
            "difference": None
            if sampler == BASELINE
            else paired_difference(right, _right(asked, rows[BASELINE, count])),
            "found": proportion(int((hits > 0).sum()), len(hits)),
            "frames": float(hits.mean()),
            "decoded": float(each["frames_decoded"].to_numpy().mean()) + (embedded if sampler == RELEVANT else 0.0),
        }


def _right(asked: pl.DataFrame, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    judged = asked.join(rows, on="job_id", maintain_order="left")
    return judged.select(pl.col("label") == pl.col("answer")).to_series().to_numpy()
