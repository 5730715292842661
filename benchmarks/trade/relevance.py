"""What `relevant` shows of clips of which a twentieth answers the question, against other samplers."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from benchmarks.describe.embedder import tiny_embedder
from benchmarks.trade.brief import BRIEF
from benchmarks.trade.inference import SpecRunner, jobs_of
from reelabel.cores import usable_cores
from reelabel.pool.decode_pool import DecodePool
from reelabel.sampling.options import Sampling
from reelabel.sampling.passes import with_times
from reelabel.segment import WHOLE
from reelabel_engine.protocol import EngineConfig
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec
from tasks.evaluation.significance import paired_difference, proportion
from tasks.model.engine.process import EngineProcess
from tasks.model.identity import read_model_card
from tasks.relevance import choose_adaptively, choose_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from tasks.description.embeddings import Embeddings
    from tasks.domain import Job
    from tasks.embedding.encoder import Encoder
    from tasks.embedding.video import VideoEmbedder
    from tasks.evaluation.scores import Difference, Proportion

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
_START_TIMEOUT_S = 600.0
_DECODE_TIMEOUT_S = 60.0
_DECODE_MIB = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one sampler shows, and what is answered by that.

    Attributes:
        sampler: A key of `_SAMPLERS`.
        count: Frames asked for.
        accuracy: Share of right answers.
        difference: From the baseline with as many frames; None for the baseline.
        found: Share of the clips of which at least one frame shows what is asked about.
        frames: Mean number of frames that show it.
        decoded: Mean number of frames decoded a clip, those to embed included.
    """

    sampler: str
    count: int
    accuracy: Proportion
    difference: Difference | None
    found: Proportion
    frames: float
    decoded: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What is found by comparing frames with some texts.

    Attributes:
        task: The kind of clips.
        texts: A key of `_TEXTS`.
        stands_out: By how much the best frames must stand out, as `choose_adaptively` takes it.
        found: For each of `COUNTS`, the share of the clips of which at least one frame shows what is asked about.
        frames: For each of them, the mean number of such frames.
    """

    task: str
    texts: str
    stands_out: float
    found: tuple[Proportion, ...]
    frames: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevanceTrade:
    """All results.

    Attributes:
        clips: Clips that were asked about.
        seen: By sampler and number of frames.
        compared: By kind of clip, texts and threshold.
    """

    clips: int
    seen: tuple[Seen, ...]
    compared: tuple[Compared, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)


def measure_relevance(
    manifest: pl.DataFrame, *, model: str, folder: Path, on_progress: Callable[[str], None]
) -> RelevanceTrade:
    """Embed the clips, choose among their frames, and ask about those that can be asked about.

    Args:
        manifest: Jobs on the clips of `benchmarks.trade.brief`.
        model: The model that answers.
        folder: For embeddings and logs.
        on_progress: Called with a description of each step.
    """
    card, asked = read_model_card(model), manifest.filter(task=BRIEF)
    config = EngineConfig(model=card.location, dtype="float32", max_pixels=SIDE_PX**2)
    with DecodePool(processes=usable_cores(), timeout_s=_DECODE_TIMEOUT_S, memory_mib=_DECODE_MIB) as pool:
        on_progress(f"Embedding frames of {manifest.height:,} clips")
        with tiny_embedder(pool, folder) as embedder:
            clips, decoded = _embed(embedder, manifest)
            texts = {name: _embed_texts(embedder.frames.encoder, manifest, of) for name, of in _TEXTS.items()}
        compared = tuple(_compare(manifest, clips, texts))
        on_progress("Loading the model")
        with EngineProcess(config, log_path=folder / "engine.log", start_timeout_s=_START_TIMEOUT_S) as engine:
            runner, rows = SpecRunner(engine=engine, pool=pool), {}
            for sampler, options_of in _SAMPLERS.items():
                for count in COUNTS:
                    on_progress(f"Answering {asked.height:,} questions with {count} frames of {sampler}")
                    spec = RunSpec(
                        model=card.identity,
                        sampling=Sampling(max_pixels=SIDE_PX**2, size_multiple_px=28, **options_of(count)),
                    )
                    samplings = _chosen(asked, clips, texts, spec.sampling) if sampler == RELEVANT else None
                    rows[sampler, count] = runner.run(jobs_of(asked), spec, samplings=samplings).rows
    return RelevanceTrade(clips=asked.height, seen=tuple(_score(asked, rows, decoded)), compared=compared)


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
) -> Iterator[Compared]:
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
                yield Compared(
                    task=str(task),
                    texts=name,
                    stands_out=stands_out,
                    found=tuple(proportion(int((each > 0).sum()), len(each)) for each in hits),
                    frames=tuple(float(each.mean()) for each in hits),
                )


def _hits(jobs: pl.DataFrame, times_ms: Mapping[str, Any]) -> npt.NDArray[np.int64]:
    """Return how many of each job's frames show what it asks about."""
    return np.array(
        [
            ((np.asarray(times_ms[job_id]) >= start_ms) & (np.asarray(times_ms[job_id]) < end_ms)).sum()
            for job_id, start_ms, end_ms in jobs.select("job_id", "start_ms", "end_ms").iter_rows()
        ]
    )


def _score(asked: pl.DataFrame, rows: Mapping[tuple[str, int], pl.DataFrame], embedded: float) -> Iterator[Seen]:
    for (sampler, count), each in rows.items():
        hits = _hits(asked, dict(each.select("job_id", "times_ms").iter_rows()))
        right = _right(asked, each)
        yield Seen(
            sampler=sampler,
            count=count,
            accuracy=proportion(int(right.sum()), len(right)),
            difference=None if sampler == BASELINE else paired_difference(right, _right(asked, rows[BASELINE, count])),
            found=proportion(int((hits > 0).sum()), len(hits)),
            frames=float(hits.mean()),
            decoded=float(each["frames_decoded"].to_numpy().mean()) + (embedded if sampler == RELEVANT else 0.0),
        )


def _right(asked: pl.DataFrame, rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
    judged = asked.join(rows, on="job_id", maintain_order="left")
    return judged.select(pl.col("label") == pl.col("answer")).to_series().to_numpy()
