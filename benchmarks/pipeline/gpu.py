"""Pipelines on a GPU: a published architecture with random weights, one-token questions about clips like NExT-QA's.

No service is needed: our contender is extraction, frame files in a folder and the engine's process, without the flow,
its store and its database. Without a GPU the same runs on cores, for which the tiny model is meant.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from benchmarks.console import OUT, PROGRESS, print_json
from benchmarks.cores import Cores, bind
from benchmarks.engine.model_folders import QWEN_3B, QWEN_7B, write_qwen
from benchmarks.media.footage import make_footage
from benchmarks.pipeline.bare_engine import BareEngine
from benchmarks.pipeline.contender import measure
from benchmarks.pipeline.extraction import Extractor
from benchmarks.pipeline.isolated import Isolated
from benchmarks.pipeline.llm_chat import LlmChat
from benchmarks.pipeline.local_pipeline import LocalPipeline
from benchmarks.pipeline.report import DEFINITION, print_results, print_versions, results_json, versions
from benchmarks.pipeline.targets import CEILING, COLD, KEYFRAMES, UNIFORM, check_targets
from benchmarks.pipeline.utilization import observe
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, make_jobs
from infra.settings import StoreSettings
from reelabel.cores import usable_cores
from reelabel.sampling.options import Sampling
from tasks.domain import RunSpec
from tasks.model.engine.process import engine_environment
from tasks.model.identity import TINY_MODEL, read_model_card
from tasks.model.protocol import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.pipeline.contender import Contender, ContenderResult
    from benchmarks.pipeline.targets import Target

MODELS: Mapping[str, Callable[[Path], Path]] = {
    "7b": lambda folder: write_qwen(QWEN_7B, folder),
    "3b": lambda folder: write_qwen(QWEN_3B, folder),
    "tiny": lambda _folder: TINY_MODEL,
}
CONTENDERS = {"ceiling": CEILING, "ours": COLD, "keyframes": KEYFRAMES, "uniform": UNIFORM}
_FRAMES = 16
_CORES_PER_RENDERER = 4  # as in a run
_MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"
_REQUESTS_IN_MEMORY = 96  # each holds 45 MB of patches at 640x360


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuBenchmark:
    """What to measure.

    Attributes:
        model: One of MODELS.
        questions: Questions per clip size, one per clip.
        sizes: Clip sizes, as `320x240`.
        contenders: Some of CONTENDERS.
        rounds: Passes of each contender.
        folder: Folder that keeps clips, model folders and logs.
    """

    model: str
    questions: int
    sizes: tuple[str, ...]
    contenders: tuple[str, ...]
    rounds: int
    folder: Path

    def __post_init__(self) -> None:
        for option, names, known in (
            ("--model", [self.model], MODELS),
            ("--contenders", self.contenders, CONTENDERS),
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


def run(benchmark: GpuBenchmark, *, as_json: bool) -> None:
    """Measure each clip size; print tables or JSON."""
    with observe(Cores.split()) as utilization:
        cores = utilization.cores
        bind(os.getpid(), cores.host)
        measured = []
        for size in benchmark.sizes:
            workload = _workload(benchmark.model, _clips(benchmark, size), benchmark.folder)
            with TemporaryDirectory(prefix="reelabel-", dir=benchmark.folder) as scratch:
                contenders = _contenders(workload, Path(scratch), cores, logs=benchmark.folder / "logs")
                chosen = {CONTENDERS[name]: contenders[CONTENDERS[name]] for name in benchmark.contenders}
                results = measure(
                    chosen, rounds=benchmark.rounds, utilization=utilization, on_progress=_show, together=False
                )
            targets = check_targets({each.contender: each for each in results}, jobs_per_video=1, warm_share=0)
            measured.append(_SizeResult(size=size, results=results, targets=targets))
    (_print_json if as_json else _print)(measured, benchmark, utilization.device)


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
    ceiling = BareEngine(workload=workload, max_in_memory=_REQUESTS_IN_MEMORY)
    return {
        CEILING: isolated(ceiling, inside, cores.engine),
        COLD: LocalPipeline(workload=workload, extractor=extractor, log_path=logs / "engine.log", cores=cores),
        KEYFRAMES: isolated(LlmChat(workload=workload, loader="pyav_keyframes", cores=cores), outside, cores.host),
        UNIFORM: isolated(LlmChat(workload=workload, loader="opencv", cores=cores), outside, cores.host),
    }


def _clips(benchmark: GpuBenchmark, size: str) -> list[Path]:
    width_px, height_px = map(int, size.split("x"))
    _show(f"making {benchmark.questions} clips of {size}")
    count = WARM_UP_CLIPS + benchmark.questions
    return make_footage(benchmark.folder, count=count, width_px=width_px, height_px=height_px)


def _show(text: str) -> None:
    PROGRESS.print(text, soft_wrap=True)


def _print(measured: Sequence[_SizeResult], benchmark: GpuBenchmark, device: str) -> None:
    for each in measured:
        title = (
            f"{benchmark.model} on {device}, {benchmark.questions} questions about as many clips of {each.size}, "
            f"{_FRAMES} frames"
        )
        print_results(title, each.results, each.targets)
    OUT.print(f"{DEFINITION} Ours runs without the flow, its store and its database.", soft_wrap=True)
    print_versions()


def _print_json(measured: Sequence[_SizeResult], benchmark: GpuBenchmark, device: str) -> None:
    report = {
        "model": benchmark.model,
        "device": device,
        "questions": benchmark.questions,
        "frames": _FRAMES,
        "definition": DEFINITION,
        "versions": versions(),
        "sizes": [{"size": each.size, **results_json(each.results, each.targets)} for each in measured],
    }
    print_json(report)
