"""Measures pipelines on a GPU: a published architecture with random weights, one-token questions on short clips.

No service is needed: our contender is extraction, frame files in a folder and the engine's process, without the flow,
its store and its database. Without a GPU the same runs on cores, for which the tiny model is meant.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from benchmarks.cores import Cores, bind, observe
from benchmarks.engine.measure import measure_life, measure_questions
from benchmarks.engine.on_gpu import measure_death, measure_encoders, measure_precision
from benchmarks.harness import PROGRESS, Column, Table
from benchmarks.live.measure import measure_latency
from benchmarks.live.stream import LiveSetup, open_live
from benchmarks.media.clips import BITS_PER_S
from benchmarks.media.footage import make_footage
from benchmarks.models import QWEN_3B, QWEN_7B, write_qwen
from benchmarks.pipeline.contender import (
    CEILING,
    COLD,
    DEFINITION,
    KEYFRAMES,
    UNIFORM,
    WARM,
    Isolated,
    Result,
    Timing,
    check_targets,
    measure,
    results_table,
)
from benchmarks.pipeline.engines import BareEngine, LlmChat
from benchmarks.pipeline.local import Extractor, LocalPipeline
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, make_jobs, versions
from infra.settings import StoreSettings
from reelabel.cores import usable_cores
from reelabel.sampling.options import Sampling
from reelabel_engine.environment import engine_environment
from reelabel_engine.errors import ModelError
from reelabel_engine.protocol import EngineConfig
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec
from tasks.model.identity import TINY_MODEL, read_model_info

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.harness import Target
    from benchmarks.pipeline.contender import Contender

    Rows = list[dict[str, Any]]

MODELS: Mapping[str, Callable[[Path], Path]] = {
    "7b": lambda folder: write_qwen(QWEN_7B, folder),
    "3b": lambda folder: write_qwen(QWEN_3B, folder),
    "tiny": lambda _folder: TINY_MODEL,
}
CONTENDERS = {"ceiling": CEILING, "warm": WARM, "ours": COLD, "keyframes": KEYFRAMES, "uniform": UNIFORM}
PARTS = ("questions", "engine", "death", "precision", "live", "encoders")
_FRAMES = 16
_CORES_PER_RENDERER = 4  # as in a run
_MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"
_REQUESTS_IN_MEMORY = 96  # each holds 45 MB of patches at 640x360
_CHAT_JOBS = 480  # LLM.chat holds those of all questions of a call
_WARM_SHARE = 0.95
_PUBLISHED_GAIN = 1.77  # over vLLM's uniform loader
_NOISE_VIDEOS, _NOISE_SIDE_PX = 96, 280
_LIVE_FRAMES, _LIVE_ROUNDS = (32, 128, 512), 3
_LIVE_SIDE_PX = 336  # the least that the processor does not scale up
_LIVE_TOLERANCE = 0.05  # bfloat16 and random weights
_ENCODER_ROUNDS = 3
# By name, what differs from the chosen settings.
_SETTINGS: Mapping[str, dict[str, Any]] = {
    "as chosen": {},
    "no graphs, no compilation": {"engine_args": {"enforce_eager": True}},
    "steps of 8,192 tokens": {"engine_args": {"max_num_batched_tokens": 8192}},
    "steps of 32,768 tokens": {"engine_args": {"max_num_batched_tokens": 32_768}},
    "half of each video pruned": {"video_pruning_rate": 0.5},
    "as chosen, at the end": {},
}


class Steps:
    """Measures steps, unless a file has their figures, so that the next run measures what no time was left for.

    Attributes:
        left: Steps for which no time was left.
        failures: Why steps failed, by their name; the next run tries them again.
    """

    def __init__(self, path: Path, *, minutes: float | None, on_progress: Callable[[str], None]) -> None:
        """Read what was measured before, figures by step, from JSON; begin no step after so many minutes."""
        self.left: list[str] = []
        self.failures: dict[str, str] = {}
        self._path, self._on_progress = path, on_progress
        self._ends_s = time.monotonic() + 60 * minutes if minutes is not None else None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}

    def take(self, name: str, measure: Callable[[], Any]) -> Any:  # noqa: ANN401 - any JSON value
        """Return the figures of a step, as JSON has them; None if it failed or no time is left for it."""
        if name in self._known:
            self._on_progress(f"{name}: measured before")
            return self._known[name]
        if self._ends_s is not None and time.monotonic() >= self._ends_s:
            self.left.append(name)
            return None
        began_s = time.monotonic()
        self._on_progress(name)
        try:
            self._known[name] = json.loads(json.dumps(measure()))
        except ModelError as error:
            self.failures[name] = error.message
            self._on_progress(f"{name}: failed: {error.message}")
            return None
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self._known))
        unfinished.replace(self._path)
        self._on_progress(f"{name}: {time.monotonic() - began_s:.0f} s")
        return self._known[name]


class GpuBenchmark(NamedTuple):
    """What to measure.

    Attributes:
        model: One of MODELS.
        questions: Questions per clip size, one per clip.
        sizes: Clip sizes, as `320x240`.
        rounds: Passes of each contender.
        folder: Folder that keeps clips, model folders, logs and figures.
        parts: Some of CONTENDERS and of PARTS.
        minutes: Start no measurement after this; None sets no limit.
    """

    model: str
    questions: int
    sizes: Sequence[str]
    rounds: int
    folder: Path
    parts: Sequence[str]
    minutes: float | None = None

    def run(self) -> tuple[list[Table], list[Target], dict[str, Any]]:
        """Measure what has not been measured before, part by part."""
        for size in self.sizes:
            if not all(side.isdecimal() for side in size.split("x")) or size.count("x") != 1:
                raise typer.BadParameter(f"{size!r} is not a size such as 320x240.", param_hint="--sizes")
            if int(size.partition("x")[0]) not in BITS_PER_S:
                widths = ", ".join(map(str, BITS_PER_S))
                raise typer.BadParameter(
                    f"{size!r} cannot be made: its width is none of {widths}.", param_hint="--sizes"
                )
        tables, targets = [], []
        with observe(Cores.split()) as utilization:
            bind(os.getpid(), utilization.cores.host)
            device = "".join(letter if letter.isalnum() else "-" for letter in utilization.device)
            path = self.folder / "gpu" / f"{self.model}-{self.questions}-{device}.json"
            steps = Steps(path, minutes=self.minutes, on_progress=_show)
            for size in self.sizes:
                if results := self._pipelines(size, steps, utilization):
                    title = f"{self.model} on {utilization.device}, {self.questions} questions about as many clips of "
                    tables.append(results_table(f"{title}{size}, {_FRAMES} frames", results))
                    targets += check_targets(results, warm_share=_WARM_SHARE, gain=_PUBLISHED_GAIN)
            for part in PARTS:
                if part in self.parts and (rows := self._part(part, steps)):
                    columns = [Column(name, name) for name in rows[0] if name != "settings"]  # too long for a table
                    note = "\n".join(f"{row['name']}: {row['settings']}" for row in rows if "settings" in row)
                    tables.append(Table(f"{self.model} on {utilization.device}: {part}", rows, columns, note))
        ours = "Ours runs without the flow, its store and its database."
        facts = {"definition": f"{DEFINITION} {ours}", "versions": versions(), "failures": steps.failures}
        return tables, targets, facts | {"not measured yet": steps.left}

    def _pipelines(self, size: str, steps: Steps, utilization: Any) -> dict[str, Result]:  # noqa: ANN401 - of either kind
        prepare = cache(lambda: self.workload(self._clips(size)))

        def measure_one(name: str) -> dict[str, Any]:
            with TemporaryDirectory(prefix="reelabel-", dir=self.folder) as scratch:
                chosen = {name: self._contenders(prepare(), Path(scratch), utilization.cores)[name]}
                found = measure(chosen, rounds=self.rounds, utilization=utilization, on_progress=lambda _: None)
            return found[name]._asdict()

        results = {}
        for name in (CONTENDERS[part] for part in self.parts if part in CONTENDERS):
            found = steps.take(f"pipelines, {size}, {name}, rounds: {self.rounds}", partial(measure_one, name))
            if found is not None:
                results[name] = Result(**found | {"timings": [Timing(*each) for each in found["timings"]]})
        return results

    def _part(self, part: str, steps: Steps) -> Rows:
        config, log_path = self.workload(()).engine, self.folder / "logs" / "engine.log"
        side_px = SIDE_PX if self.model == "tiny" else _NOISE_SIDE_PX
        if part == "engine":
            videos = min(self.questions, _NOISE_VIDEOS)
            life = partial(measure_life, log_path=log_path, videos=videos, frames=_FRAMES, side_px=side_px)
            named = {
                name: steps.take(f"engine, {name}", partial(life, replace(config, **options)))
                for name, options in _SETTINGS.items()
            }
            return [{"name": name, **figures} for name, figures in named.items() if figures]
        measure: Mapping[str, Callable[[], Rows]] = {
            "questions": lambda: measure_questions(config, log_path, side_px=side_px, rounds=3, counts=(1, 8, 32)),
            "death": lambda: [measure_death(config, log_path, frames=_FRAMES, side_px=side_px)],
            "precision": lambda: measure_precision(
                self._replace(model="tiny").workload(()).engine, log_path, videos=_NOISE_VIDEOS, frames=_FRAMES
            ),
            "live": lambda: self._live(config),
            "encoders": lambda: measure_encoders(self.folder, rounds=_ENCODER_ROUNDS),
        }
        return steps.take(part, measure[part]) or []

    def _live(self, config: EngineConfig) -> Rows:
        side_px = SIDE_PX if self.model == "tiny" else _LIVE_SIDE_PX
        setup = LiveSetup(config=replace(config, live_sessions=2), side_px=side_px)
        with open_live(setup, self.folder / "logs") as live:
            measured = measure_latency(
                live, setup, _LIVE_FRAMES, rounds=_LIVE_ROUNDS, show=_show, tolerance=_LIVE_TOLERANCE
            )
            return [{name: round(value, 1) for name, value in row.items()} for row in measured]

    def workload(self, clips: Sequence[Path]) -> Workload:
        """Return the model with a question about each clip."""
        model_info = read_model_info(str(MODELS[self.model](self.folder)))
        assert model_info.max_pixels is not None
        size: dict[str, Any] = {"max_pixels": model_info.max_pixels, "size_multiple_px": model_info.size_multiple_px}
        return Workload(
            engine=EngineConfig(
                model=model_info.location,
                load_format="dummy",
                render_processes=max(1, usable_cores() // _CORES_PER_RENDERER),
            ),
            spec=RunSpec(model=model_info.identity, sampling=Sampling(num_frames=_FRAMES, **size)),
            jobs=make_jobs(clips[WARM_UP_CLIPS:]),
            warm_up=make_jobs(clips[:WARM_UP_CLIPS]),
        )

    def _contenders(self, workload: Workload, scratch: Path, cores: Cores) -> dict[str, Contender]:
        logs = self.folder / "logs"
        inside = engine_environment(workload.engine)
        outside = inside | cores.engine_variables | {_MULTIPROCESSING: os.environ.get(_MULTIPROCESSING, "1")}
        isolated = partial(Isolated, logs=logs)
        extractor = Extractor(
            videos=workload.videos,
            sampling=workload.spec.sampling,
            store=StoreSettings(),
            root_uri=scratch.as_uri(),
        )
        ours = LocalPipeline(workload=workload, extractor=extractor, log_path=logs / "engine.log", cores=cores)
        uniform = LlmChat(workload=workload, loader="opencv", cores=cores, max_jobs=_CHAT_JOBS)
        ceiling = BareEngine(workload=workload, max_in_memory=_REQUESTS_IN_MEMORY)
        return {
            CEILING: isolated(ceiling, environment=inside, cores=cores.engine),
            COLD: ours,
            WARM: replace(ours, is_warm=True),
            KEYFRAMES: isolated(replace(uniform, loader="pyav_keyframes"), environment=outside, cores=cores.host),
            UNIFORM: isolated(uniform, environment=outside, cores=cores.host),
        }

    def _clips(self, size: str) -> list[Path]:
        width_px, height_px = map(int, size.split("x"))
        _show(f"making {self.questions} clips of {size}")
        count = WARM_UP_CLIPS + self.questions
        return make_footage(self.folder, count=count, width_px=width_px, height_px=height_px)


def _show(text: str) -> None:
    PROGRESS.print(text, soft_wrap=True)
