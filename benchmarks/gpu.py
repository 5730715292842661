"""The whole way from videos to answers beside a GPU: `python -m benchmarks.gpu`.

A real architecture with made-up weights, one-token questions about clips like NExT-QA's. It needs no
service: here our pipeline is extraction, frame files in a folder and the engine's process, without the
flow, its store and its database. Without a GPU it runs as well, on cores; `--model tiny` is made for that.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.media.footage import make_footage
from benchmarks.pipeline.busy import watch
from benchmarks.pipeline.chat import Chatting
from benchmarks.pipeline.cores import Cores, bind
from benchmarks.pipeline.extraction import Extraction
from benchmarks.pipeline.feed import Feeding
from benchmarks.pipeline.remote import Remote
from benchmarks.pipeline.rounds import measure
from benchmarks.pipeline.stream import Streaming
from benchmarks.pipeline.table import DEFINITION, facts, rows_table, verdict_lines, versions
from benchmarks.pipeline.verdict import CEILING, COLD, KEYFRAMES, UNIFORM, judge
from benchmarks.pipeline.workload import WARM_UP_CLIPS, Workload, make_jobs
from benchmarks.qwen import QWEN_3B, QWEN_7B, write_qwen
from infra.settings import StoreSettings
from tasks.domain import RunSpec, Sampling
from tasks.model.identity import TINY_MODEL, read_model_card
from tasks.model.process import engine_environment
from tasks.model.questions import EngineConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.pipeline.rounds import Row
    from benchmarks.pipeline.timing import Way
    from benchmarks.pipeline.verdict import Verdict

MODELS: Mapping[str, Callable[[Path], Path]] = {
    "7b": lambda folder: write_qwen(QWEN_7B, folder),
    "3b": lambda folder: write_qwen(QWEN_3B, folder),
    "tiny": lambda _folder: TINY_MODEL,
}
_WAYS = {"ceiling": CEILING, "ours": COLD, "keyframes": KEYFRAMES, "uniform": UNIFORM}
_FRAMES = 16
_CORES_PER_RENDERER = 4  # as in a run
_MULTIPROCESSING = "VLLM_ENABLE_V1_MULTIPROCESSING"
_REQUESTS_IN_MEMORY = 96  # of 640x360 each is 45 MB of patches
_PROGRESS = Console(stderr=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Clips of one size."""

    size: str
    rows: list[Row] = field(repr=False)
    verdicts: list[Verdict] = field(repr=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    asked = _parser().parse_args(arguments)
    with watch(Cores.split()) as busy:
        cores = busy.cores
        bind(os.getpid(), cores.host)
        measured = []
        for size in asked.sizes.split(","):
            clips = _clips(asked.folder, size, asked.questions)
            workload = make_workload(asked.model, clips, asked.folder)
            with TemporaryDirectory(prefix="reelabel-", dir=asked.folder) as scratch:
                ways = make_ways(workload, Path(scratch), cores, logs=asked.folder / "logs")
                chosen = {_WAYS[name]: ways[_WAYS[name]] for name in asked.ways.split(",")}
                rows = measure(chosen, rounds=asked.rounds, busy=busy, say=_say, together=False)
            verdicts = judge({row.way: row for row in rows}, jobs_per_video=1, warm_share=0)
            measured.append(Measured(size=size, rows=rows, verdicts=verdicts))
    (_print_json if asked.json else _print)(measured, asked, busy.device)


def make_workload(model: str, clips: Sequence[Path], folder: Path) -> Workload:
    """Ask a question about each clip but those for warming up; weights are made up when the model is loaded."""
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
            render_processes=max(1, (os.cpu_count() or 1) // _CORES_PER_RENDERER),
        ),
        spec=RunSpec(model=card.identity, sampling=sampling),
        jobs=make_jobs(clips[WARM_UP_CLIPS:], questions_per_video=1),
        warm_up=make_jobs(clips[:WARM_UP_CLIPS], questions_per_video=1),
    )


def make_ways(workload: Workload, scratch: Path, cores: Cores, *, logs: Path) -> dict[str, Way]:
    """Lay out what is compared: one model in memory at a time."""
    inside = engine_environment(workload.engine)
    apart = inside | cores.engine_variables | {_MULTIPROCESSING: os.environ.get(_MULTIPROCESSING, "1")}

    def remote(way: Way, environment: Mapping[str, str], where: frozenset[int]) -> Way:
        log_path = logs / f"{type(way).__name__.lower()}.log"
        return Remote(way, environment=environment, cores=where, log_path=log_path)

    extraction = Extraction(sampling=workload.spec.sampling, store=StoreSettings(), root_uri=scratch.as_uri())
    feeding = Feeding(workload=workload, most_in_memory=_REQUESTS_IN_MEMORY)
    return {
        CEILING: remote(feeding, inside, cores.engine),
        COLD: Streaming(workload=workload, extraction=extraction, log_path=logs / "engine.log", cores=cores),
        KEYFRAMES: remote(Chatting(workload=workload, loader="pyav_keyframes", cores=cores), apart, cores.host),
        UNIFORM: remote(Chatting(workload=workload, loader="opencv", cores=cores), apart, cores.host),
    }


def _clips(folder: Path, size: str, count: int) -> list[Path]:
    width_px, height_px = map(int, size.split("x"))
    _say(f"making {count} clips of {size}")
    return make_footage(folder, count=WARM_UP_CLIPS + count, width_px=width_px, height_px=height_px)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--model", choices=sorted(MODELS), default="7b")
    parser.add_argument("--questions", type=int, default=1990, help="for each size of clips")
    parser.add_argument("--sizes", default="320x240,640x360", help="of clips, with commas between")
    parser.add_argument("--ways", default=",".join(_WAYS), help="what to compare, with commas between")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(".reelabel/bench"), help="where clips are made once")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser


def _say(text: str) -> None:
    _PROGRESS.print(text, soft_wrap=True)


def _print(measured: Sequence[Measured], asked: argparse.Namespace, device: str) -> None:
    console = Console()
    for each in measured:
        ceiling = next((row.jobs_per_s for row in each.rows if row.way == CEILING), None)
        title = (
            f"{asked.model} on {device}, {asked.questions} questions on as many clips of {each.size}, {_FRAMES} frames"
        )
        console.print(rows_table(title, each.rows, ceiling=ceiling))
        for line in verdict_lines(each.verdicts):
            console.print(line, soft_wrap=True, highlight=False)
    console.print(f"{DEFINITION} Ours is without the flow, its store and its database.", soft_wrap=True)
    console.print(", ".join(f"{name} {number}" for name, number in versions().items()), soft_wrap=True)


def _print_json(measured: Sequence[Measured], asked: argparse.Namespace, device: str) -> None:
    report = {
        "model": asked.model,
        "device": device,
        "questions": asked.questions,
        "frames": _FRAMES,
        "definition": DEFINITION,
        "versions": versions(),
        "sizes": [{"size": each.size, **facts(each.rows, each.verdicts)} for each in measured],
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
