"""Pipelines on a GPU: a published architecture with random weights, one-token questions about clips like NExT-QA's.

No service is needed: our contender is extraction, frame files in a folder and the engine's process, without the flow,
its store and its database. Without a GPU the same runs on cores, for which the tiny model is meant.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from benchmarks.console import OUT, PROGRESS, figures_table, print_json
from benchmarks.cores import Cores, bind
from benchmarks.describe.encoders import measure_encoders
from benchmarks.engine.life import EngineWork, measure_death, measure_life, measure_precision, measure_shared_video
from benchmarks.engine.model_folders import QWEN_3B, QWEN_7B, write_qwen
from benchmarks.live.latency import measure_latency
from benchmarks.live.stream import LiveSetup, open_live
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.bare_engine import BareEngine
from benchmarks.pipeline.contender import ContenderResult, Timing, measure
from benchmarks.pipeline.extraction import Extractor
from benchmarks.pipeline.isolated import Isolated
from benchmarks.pipeline.llm_chat import LlmChat
from benchmarks.pipeline.local_pipeline import LocalPipeline
from benchmarks.pipeline.report import DEFINITION, print_results, print_versions, results_json, versions
from benchmarks.pipeline.targets import CEILING, COLD, KEYFRAMES, UNIFORM, WARM, check_targets
from benchmarks.pipeline.utilization import observe
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, make_jobs
from benchmarks.steps import Steps
from infra.settings import StoreSettings
from reelabel.cores import usable_cores
from reelabel.sampling.options import Sampling
from reelabel_engine.environment import engine_environment
from reelabel_engine.protocol import EngineConfig
from tasks.demo.actors import SIDE_PX
from tasks.domain import RunSpec
from tasks.model.identity import TINY_MODEL, read_model_card

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.pipeline.contender import Contender
    from benchmarks.pipeline.targets import Target
    from benchmarks.pipeline.utilization import CpuUtilization, GpuUtilization

MODELS: Mapping[str, Callable[[Path], Path]] = {
    "7b": lambda folder: write_qwen(QWEN_7B, folder),
    "3b": lambda folder: write_qwen(QWEN_3B, folder),
    "tiny": lambda _folder: TINY_MODEL,
}
CONTENDERS = {"ceiling": CEILING, "warm": WARM, "ours": COLD, "keyframes": KEYFRAMES, "uniform": UNIFORM}
_FRAMES = 16
_CORES_PER_RENDERER = 4  # as in a run
_MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"
_REQUESTS_IN_MEMORY = 96  # each holds 45 MB of patches at 640x360
_CHAT_JOBS = 480  # LLM.chat holds those of all questions of a call
_WARM_SHARE = 0.95
_PUBLISHED_GAIN = 1.77  # over vLLM's uniform loader
_NOISE_VIDEOS, _NOISE_SIDE_PX = 96, 280
_SHARED_FRAMES = 32
_LIVE_FRAMES, _LIVE_ROUNDS = (32, 128, 512), 3
_LIVE_SIDE_PX = 336  # the least that the processor does not scale up
_LIVE_TOLERANCE = 0.05  # bfloat16 and random weights
_ENCODER_ROUNDS = 3
# By name, what differs from the chosen settings.
_SETTINGS: Mapping[str, dict[str, Any]] = {
    "as chosen": {},
    "no graphs, no compilation": {"enforce_eager": True},
    "steps of 8,192 tokens": {"max_num_batched_tokens": 8192},
    "steps of 32,768 tokens": {"max_num_batched_tokens": 32_768},
    "half of each video pruned": {"video_pruning_rate": 0.5},
    "as chosen, at the end": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBenchmark:
    """What to measure.

    Attributes:
        model: One of MODELS.
        questions: Questions per clip size, one per clip.
        sizes: Clip sizes, as `320x240`.
        rounds: Passes of each contender.
        folder: Folder that keeps clips, model folders, logs and figures.
        parts: Some of CONTENDERS and of PARTS.
        minutes: Begin nothing later than this; None sets no limit.
    """

    model: str
    questions: int
    sizes: tuple[str, ...]
    rounds: int
    folder: Path
    parts: tuple[str, ...]
    minutes: float | None = None

    def __post_init__(self) -> None:
        for option, names, known in (
            ("--model", [self.model], MODELS),
            ("--parts", self.parts, (*CONTENDERS, *PARTS)),
        ):
            for name in names:
                if name not in known:
                    raise typer.BadParameter(f"Unknown {name!r}; choose from {', '.join(known)}.", param_hint=option)
        for size in self.sizes:
            if not all(side.isdecimal() for side in size.split("x")) or size.count("x") != 1:
                raise typer.BadParameter(f"{size!r} is not a size such as 320x240.", param_hint="--sizes")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SizeResult:
    size: str
    results: list[ContenderResult] = field(repr=False)
    targets: list[Target] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    benchmark: GpuBenchmark
    device: str
    steps: Steps
    sizes: list[_SizeResult]
    figures: Mapping[str, list[dict[str, Any]]]


def run(benchmark: GpuBenchmark, *, as_json: bool) -> None:
    """Measure what has not been measured before, part by part; print tables or JSON."""
    with observe(Cores.split()) as utilization:
        bind(os.getpid(), utilization.cores.host)
        device = "".join(letter if letter.isalnum() else "-" for letter in utilization.device)
        steps = Steps(
            benchmark.folder / "gpu" / f"{benchmark.model}-{benchmark.questions}-{device}.jsonl",
            minutes=benchmark.minutes,
            on_progress=_show,
        )
        sizes = _pipelines(benchmark, steps, utilization)
        figures = {part: PARTS[part](benchmark, steps) for part in PARTS if part in benchmark.parts}
    report = _Report(benchmark=benchmark, device=utilization.device, steps=steps, sizes=sizes, figures=figures)
    (_print_json if as_json else _print)(report)


def _pipelines(
    benchmark: GpuBenchmark, steps: Steps, utilization: GpuUtilization | CpuUtilization
) -> list[_SizeResult]:
    measured = []
    for size in benchmark.sizes:
        prepare = cache(lambda size=size: _workload(benchmark.model, _clips(benchmark, size), benchmark.folder))

        def measure_one(name: str, prepare: Callable[[], Workload] = prepare) -> dict[str, Any]:
            with TemporaryDirectory(prefix="reelabel-", dir=benchmark.folder) as scratch:
                contenders = _contenders(prepare(), Path(scratch), utilization.cores, logs=benchmark.folder / "logs")
                chosen = {CONTENDERS[name]: contenders[CONTENDERS[name]]}
                [result] = measure(chosen, rounds=benchmark.rounds, utilization=utilization, on_progress=lambda _: None)
            return asdict(result)

        found = [
            steps.take(f"pipelines, {size}, {name}, rounds: {benchmark.rounds}", partial(measure_one, name))
            for name in benchmark.parts
            if name in CONTENDERS
        ]
        results = [
            ContenderResult(**{**each, "timings": tuple(Timing(**timing) for timing in each["timings"])})
            for each in found
            if each is not None
        ]
        by_name = {each.contender: each for each in results}
        targets = check_targets(by_name, jobs_per_video=1, warm_share=_WARM_SHARE, gain=_PUBLISHED_GAIN)
        measured.append(_SizeResult(size=size, results=results, targets=targets))
    return [each for each in measured if each.results]


def _engine_config(benchmark: GpuBenchmark) -> EngineConfig:
    return _workload(benchmark.model, (), benchmark.folder).engine


def _work(benchmark: GpuBenchmark) -> EngineWork:
    return EngineWork(
        videos=min(benchmark.questions, _NOISE_VIDEOS),
        side_px=SIDE_PX if benchmark.model == "tiny" else _NOISE_SIDE_PX,
        log_path=benchmark.folder / "logs" / "engine.log",
    )


def _shared_video(benchmark: GpuBenchmark, steps: Steps) -> list[dict[str, Any]]:
    config = replace(_engine_config(benchmark), num_frames=_SHARED_FRAMES)
    rows = steps.take("questions on one video", lambda: measure_shared_video(config, _work(benchmark)))
    return list(rows or [])


def _settings(benchmark: GpuBenchmark, steps: Steps) -> list[dict[str, Any]]:
    rows = []
    for name, options in _SETTINGS.items():
        config = replace(_engine_config(benchmark), **options)
        figures = steps.take(f"engine, {name}", partial(measure_life, config, _work(benchmark)))
        if figures:
            rows.append({"name": name, **figures})
    return rows


def _death(benchmark: GpuBenchmark, steps: Steps) -> list[dict[str, Any]]:
    figures = steps.take("death", lambda: measure_death(_engine_config(benchmark), _work(benchmark)))
    return [figures] if figures else []


def _precision(benchmark: GpuBenchmark, steps: Steps) -> list[dict[str, Any]]:
    tiny = replace(benchmark, model="tiny")
    exact = replace(_engine_config(tiny), load_format="auto", dtype="float32")
    others = [replace(exact, dtype="bfloat16")]
    rows = steps.take("precision", lambda: measure_precision(exact, others, _work(tiny)))
    return list(rows or [])


def _live(benchmark: GpuBenchmark, steps: Steps) -> list[dict[str, Any]]:
    config = replace(_engine_config(benchmark), live_sessions=2)
    setup = LiveSetup(
        name=benchmark.model, config=config, side_px=SIDE_PX if benchmark.model == "tiny" else _LIVE_SIDE_PX
    )

    def measure_live() -> list[dict[str, Any]]:
        with open_live(setup, benchmark.folder / "logs") as live:
            measured = measure_latency(
                live, setup, _LIVE_FRAMES, rounds=_LIVE_ROUNDS, on_length=_show, tolerance=_LIVE_TOLERANCE
            )
            return [{name: round(value, 1) for name, value in row.items()} for row in measured]

    return list(steps.take("live", measure_live) or [])


def _encoders(benchmark: GpuBenchmark, steps: Steps) -> list[dict[str, Any]]:
    return list(steps.take("encoders", lambda: measure_encoders(benchmark.folder, rounds=_ENCODER_ROUNDS)) or [])


PARTS: Mapping[str, Callable[[GpuBenchmark, Steps], list[dict[str, Any]]]] = {
    "questions": _shared_video,
    "engine": _settings,
    "death": _death,
    "precision": _precision,
    "live": _live,
    "encoders": _encoders,
}


def _workload(model: str, clips: Sequence[Path], folder: Path) -> Workload:
    card = read_model_card(str(MODELS[model](folder)))
    assert card.max_pixels is not None
    sampling = Sampling(num_frames=_FRAMES, size_multiple_px=card.size_multiple_px, max_pixels=card.max_pixels)
    return Workload(
        name=model,
        engine=EngineConfig(
            model=card.location,
            load_format="dummy",
            num_frames=_FRAMES,
            max_pixels=card.max_pixels,
            size_multiple_px=card.size_multiple_px,
            render_processes=max(1, usable_cores() // _CORES_PER_RENDERER),
        ),
        spec=RunSpec(model=card.identity, sampling=sampling),
        jobs=make_jobs(clips[WARM_UP_CLIPS:], questions_per_video=1),
        warm_up=make_jobs(clips[:WARM_UP_CLIPS], questions_per_video=1),
    )


def _contenders(workload: Workload, scratch: Path, cores: Cores, *, logs: Path) -> dict[str, Contender]:
    inside = engine_environment(workload.engine)
    outside = inside | cores.engine_variables | {_MULTIPROCESSING: os.environ.get(_MULTIPROCESSING, "1")}

    def isolated(contender: Contender, environment: Mapping[str, str], where: frozenset[int]) -> Contender:
        log_path = logs / f"{type(contender).__name__.lower()}.log"
        return Isolated(contender, environment=environment, cores=where, log_path=log_path)

    extractor = Extractor(sampling=workload.spec.sampling, store=StoreSettings(), root_uri=scratch.as_uri())
    ours = LocalPipeline(workload=workload, extractor=extractor, log_path=logs / "engine.log", cores=cores)
    uniform = LlmChat(workload=workload, loader="opencv", cores=cores, max_jobs=_CHAT_JOBS)
    keyframes = replace(uniform, loader="pyav_keyframes")
    ceiling = BareEngine(workload=workload, max_in_memory=_REQUESTS_IN_MEMORY)
    return {
        CEILING: isolated(ceiling, inside, cores.engine),
        COLD: ours,
        WARM: replace(ours, is_warm=True),
        KEYFRAMES: isolated(keyframes, outside, cores.host),
        UNIFORM: isolated(uniform, outside, cores.host),
    }


def _clips(benchmark: GpuBenchmark, size: str) -> list[Path]:
    width_px, height_px = map(int, size.split("x"))
    _show(f"making {benchmark.questions} clips of {size}")
    count = WARM_UP_CLIPS + benchmark.questions
    return make_footage(benchmark.folder, count=count, width_px=width_px, height_px=height_px)


def _show(text: str) -> None:
    PROGRESS.print(text, soft_wrap=True)


def _print(report: _Report) -> None:
    benchmark, steps = report.benchmark, report.steps
    for each in report.sizes:
        title = (
            f"{benchmark.model} on {report.device}, {benchmark.questions} questions about as many clips of "
            f"{each.size}, {_FRAMES} frames"
        )
        print_results(title, each.results, each.targets)
    if report.sizes:
        OUT.print(f"{DEFINITION} Ours runs without the flow, its store and its database.", soft_wrap=True)
    for part, rows in report.figures.items():
        if rows:
            shown = [name for name in rows[0] if name != "settings"]  # too long for a table
            table = figures_table(f"{benchmark.model} on {report.device}: {part}", shown, as_markdown=True)
            for row in rows:
                table.add_row(*("" if row[name] is None else str(row[name]) for name in shown))
            OUT.print(table)
            for row in rows:
                if "settings" in row:
                    OUT.print(f"{row['name']}: {row['settings']}", soft_wrap=True, highlight=False)
    for name, message in steps.failures.items():
        OUT.print(f"failed  {name}: {message}", soft_wrap=True, highlight=False)
    if steps.left:
        OUT.print(f"No time was left for: {'; '.join(steps.left)}. The same command measures it.", soft_wrap=True)
    print_versions()


def _print_json(report: _Report) -> None:
    print_json(
        {
            "model": report.benchmark.model,
            "device": report.device,
            "questions": report.benchmark.questions,
            "frames": _FRAMES,
            "definition": DEFINITION,
            "versions": versions(),
            "sizes": [{"size": each.size, **results_json(each.results, each.targets)} for each in report.sizes],
            **report.figures,
            "failures": report.steps.failures,
            "left": report.steps.left,
        }
    )
