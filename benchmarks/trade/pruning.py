"""What pruning of videos (vLLM's EVS) does to tokens, speed and answers, on the clips of the trade benchmark."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import polars as pl

from benchmarks.harness import Column, Table
from benchmarks.trade.fitting import DENSE, specs_of
from benchmarks.trade.inference import decode_pool, engine_of, jobs_of
from benchmarks.trade.report import share_cell, signed_cell
from reelabel.cores import usable_cores
from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import write_frames
from reelabel.limits import Limits
from reelabel.result import Frames
from reelabel_engine.protocol import Batch
from tasks.domain import Answer
from tasks.evaluation.compare import CandidateResults, compare_candidates
from tasks.model.identity import read_model_card
from tasks.model.prompts.prompt import build_question
from tools.tiny_model.scenes import SCENE_QUESTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tasks.domain import Job, RunSpec
    from tasks.evaluation.scores import CandidateScore
    from tasks.model.engine.process import EngineProcess

RATES = (0.25, 0.5, 0.75)
UNPRUNED = "unpruned"
_BATCH_JOBS = 32
_COLUMNS = (
    Column("video_pruning_rate", "rate"),
    Column("tokens", "tokens", ".1f"),
    Column("accuracy", "accuracy"),
    Column(f"minus {UNPRUNED}", "difference"),
    Column("times as fast", "speed", ".2f"),
    Column("the same, all questions on a clip", "speed_shared", ".2f"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedAnswers:
    """What an engine that prunes does, against one that does not, both asked in turn about the same frames.

    Attributes:
        rate: Fraction of a video's tokens that is left out.
        labels: A row per job: `job_id`, `label`, `probabilities`.
        tokens: Mean tokens of a prompt.
        unpruned: The same two of the other engine.
        unpruned_tokens: Mean tokens of its prompts.
        speed: Median, over batches of one question a clip, of how many times as fast it answers.
        speed_shared: The same for batches of all kinds of questions on each clip, whose prefill only the engine that
            does not prune can share.
    """

    rate: float
    labels: pl.DataFrame = field(repr=False)
    tokens: float
    unpruned: pl.DataFrame = field(repr=False)
    unpruned_tokens: float
    speed: float
    speed_shared: float


def measure_pruning(
    manifest: pl.DataFrame, *, model: str, log_folder: Path, on_progress: Callable[[str], None]
) -> list[PrunedAnswers]:
    """Ask every question of an engine that prunes and of one that does not, for each rate."""
    card = read_model_card(model)
    spec, jobs = specs_of(card.identity)[DENSE], jobs_of(manifest)
    on_progress(f"Decoding {len(jobs):,} clips")
    files = _extract(jobs, spec)
    measured = []
    for rate in RATES:
        on_progress(f"Answering {len(jobs):,} questions with and without a video_pruning_rate of {rate:g}")
        with ExitStack() as stack:
            pruning, other = (
                stack.enter_context(engine_of(card, log_folder / f"engine-{each:g}.log", video_pruning_rate=each))
                for each in (rate, 0.0)
            )
            measured.append(_compare(pruning, other, jobs, files, spec, rate=rate))
    return measured


def _extract(jobs: Sequence[Job], spec: RunSpec) -> dict[str, bytes]:
    """Return the frame file of each job's clip, by URI."""
    with decode_pool() as pool, ThreadPoolExecutor(usable_cores()) as threads:

        def extract(job: Job) -> bytes:
            frames = pool.extract(Path(job.video_uri), sampling=spec.sampling, limits=Limits())
            identity = FrameIdentity(source_uri=job.video_uri, fingerprint=job.job_id, sampling=spec.sampling)
            return write_frames(Frames.of(frames), identity)

        return dict(zip([job.video_uri for job in jobs], threads.map(extract, jobs), strict=True))


def _compare(
    pruning: EngineProcess,
    other: EngineProcess,
    jobs: Sequence[Job],
    files: dict[str, bytes],
    spec: RunSpec,
    *,
    rate: float,
) -> PrunedAnswers:
    chunks = [jobs[start : start + _BATCH_JOBS] for start in range(0, len(jobs), _BATCH_JOBS)]
    for engine in (pruning, other):  # the first answers of a process take longer
        _ask(engine, chunks[0], files, spec)
    single = [_in_turn((pruning, other), chunk, files, spec, is_swapped=at % 2 == 1) for at, chunk in enumerate(chunks)]
    shared = [
        _in_turn((pruning, other), list(_all_kinds(chunk)), files, spec, is_swapped=at % 2 == 1)
        for at, chunk in enumerate(chunks)
    ]
    ours, theirs = ([answer for turn in single for answer in turn[place][0]] for place in (0, 1))
    return PrunedAnswers(
        rate=rate,
        labels=_labels(jobs, ours),
        tokens=sum(answer.prompt_tokens for answer in ours) / len(ours),
        unpruned=_labels(jobs, theirs),
        unpruned_tokens=sum(answer.prompt_tokens for answer in theirs) / len(theirs),
        speed=_times_as_fast(single),
        speed_shared=_times_as_fast(shared),
    )


_Turn = tuple[list[Answer], float]


def _in_turn(
    engines: tuple[EngineProcess, EngineProcess],
    jobs: Sequence[Job],
    files: dict[str, bytes],
    spec: RunSpec,
    *,
    is_swapped: bool,
) -> tuple[_Turn, _Turn]:
    """Ask both engines one after the other, the second first if swapped; return what each answers in what time."""
    asked = {place: _ask(engines[place], jobs, files, spec) for place in ((1, 0) if is_swapped else (0, 1))}
    return asked[0], asked[1]


def _ask(engine: EngineProcess, jobs: Sequence[Job], files: dict[str, bytes], spec: RunSpec) -> _Turn:
    batch = Batch(
        frame_files={job.video_uri: files[job.video_uri] for job in jobs},
        questions=tuple(build_question(job, spec) for job in jobs),
    )
    began_s = time.perf_counter()
    replies = engine.answer(batch)
    took_s = time.perf_counter() - began_s
    answers = [reply for reply in replies if isinstance(reply, Answer)]
    assert len(answers) == len(replies), f"the engine rejected a question: {replies}"
    return answers, took_s


def _all_kinds(jobs: Sequence[Job]) -> Iterator[Job]:
    """Yield every kind of question on each clip."""
    for job in jobs:
        for kind, (prompt, choices) in SCENE_QUESTIONS.items():
            yield replace(job, job_id=f"{job.job_id}-{kind}", prompt=prompt, choices=tuple(choices))


def _labels(jobs: Sequence[Job], answers: Sequence[Answer]) -> pl.DataFrame:
    rows = [
        {
            "job_id": job.job_id,
            "label": job.choices[answer.choice_index],
            "probabilities": list(answer.probabilities),
            "choice_mass": answer.choice_mass,
        }
        for job, answer in zip(jobs, answers, strict=True)
    ]
    return pl.DataFrame(rows)


def _times_as_fast(turns: Sequence[tuple[_Turn, _Turn]]) -> float:
    return median(other_s / pruning_s for (_, pruning_s), (_, other_s) in turns)


def score(manifest: pl.DataFrame, measured: Sequence[PrunedAnswers]) -> list[CandidateScore]:
    """Score the answers of each rate, after those without pruning, and compare them."""
    labels = {UNPRUNED: measured[0].unpruned} | {f"{each.rate:g}": each.labels for each in measured}
    results = [
        CandidateResults(name=name, spec_id="", model="", sampling={"sampler": DENSE, "num_frames": 0}, labels=found)
        for name, found in labels.items()
    ]
    return list(compare_candidates(manifest, results, baseline=UNPRUNED).specs)


def pruning_tables(manifest: pl.DataFrame, measured: Sequence[PrunedAnswers]) -> list[Table]:
    """Tabulate what each rate does to tokens, speed and answers."""
    first, *others = score(manifest, measured)
    rows: list[dict[str, Any]] = [
        {"rate": UNPRUNED, "tokens": measured[0].unpruned_tokens, "accuracy": share_cell(first.accuracy)}
    ]
    for one, each in zip(others, measured, strict=True):
        assert one.difference
        row = {"rate": one.name, "tokens": each.tokens, "accuracy": share_cell(one.accuracy)}
        row |= {"difference": signed_cell(one.difference), "speed": each.speed, "speed_shared": each.speed_shared}
        rows.append(row)
    return [Table(f"{first.jobs:,} questions with {DENSE}, pruned", rows, _COLUMNS)]
