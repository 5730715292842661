"""The benchmarks of whole pipelines, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, Rounds


def pipeline(
    model: Annotated[str, typer.Option(help="tiny, 100m, or both.")] = "both",
    folder: ClipFolder = FOLDER,
    jobs: Annotated[
        int, typer.Option(min=4, max=10_000, help="Jobs per pass with the tiny model; 100m gets 1/24 of them.")
    ] = 3600,
    questions: Annotated[int, typer.Option(min=1, max=3, help="Questions per video.")] = 1,
    rounds: Rounds = 2,
    *,
    json: AsJson = False,
) -> None:
    """Compare whole pipelines, from videos to answers, with the engine's ceiling and vLLM's own LLM.chat.

    Exit with 1 where a target is missed.
    """
    from benchmarks.pipeline.runner import run  # noqa: PLC0415

    raise typer.Exit(run(model, folder, jobs=jobs, questions=questions, rounds=rounds, as_json=json))


def gpu(
    model: Annotated[str, typer.Option(help="7b or 3b (Qwen2.5-VL with random weights), or tiny.")] = "7b",
    questions: Annotated[int, typer.Option(min=1, help="Questions per clip size, one per clip.")] = 1990,
    sizes: Annotated[str, typer.Option(help="Clip sizes in pixels, comma-separated.")] = "320x240,640x360",
    parts: Annotated[
        str, typer.Option(help="What to compare, and what else to measure, comma-separated.")
    ] = "ceiling,warm,ours,uniform,keyframes,questions,engine,death,precision,live,encoders",
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Begin nothing later than this; the same command measures the rest.")
    ] = None,
    rounds: Rounds = 1,
    folder: ClipFolder = FOLDER,
    *,
    json: AsJson = False,
) -> None:
    """Compare pipelines on a GPU, and measure its engine, live sessions and the image-text encoders; needs no service.

    What was measured before is not measured again: FOLDER/gpu keeps the figures.
    """
    from benchmarks.pipeline.gpu import GpuBenchmark, run  # noqa: PLC0415

    benchmark = GpuBenchmark(
        model=model,
        questions=questions,
        sizes=tuple(sizes.split(",")),
        rounds=rounds,
        folder=folder,
        parts=tuple(parts.split(",")),
        minutes=minutes,
    )
    run(benchmark, as_json=json)


BENCHES = (
    Bench(pipeline, "pipeline --model tiny --jobs 60 --rounds 1"),
    Bench(gpu, "gpu --questions 480 --sizes 320x240 --minutes 9"),
)
