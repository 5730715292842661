"""Benchmarks of whole pipelines, from videos or jobs to answers."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from benchmarks.harness import flow_services, progress, show
from benchmarks.options import FOLDER, MODELS, AsJson, Folder, Model, Rounds, known_names, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.measure import Videos
    from infra.settings import StoreSettings


def pipeline(  # noqa: PLR0913 - a command's options
    part: Annotated[
        Literal["classify", "describe", "gpu"],
        typer.Argument(
            help="classify: the flow, on CPUs; describe: the flow, with a SigLIP base, and its model and extraction "
            "alone; gpu: the same as classify on a GPU, without services, and its engine, live sessions and image-text "
            "encoders."
        ),
    ] = "classify",
    model: Annotated[
        str | None,
        typer.Option(
            help="classify: tiny, 100m, or both, comma-separated. gpu: 7b or 3b (Qwen2.5-VL with random weights), or "
            "tiny; 7b by default."
        ),
    ] = None,
    folder: Folder = FOLDER,
    jobs: Annotated[
        int, typer.Option(min=2, max=10_000, help="Not gpu: jobs per pass; 100m gets 1/24 of them.")
    ] = 3600,
    questions: Annotated[int, typer.Option(min=1, help="gpu: questions per clip size, one per clip.")] = 1990,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Measured repetitions; defaults to 2, or 1 for gpu.")
    ] = None,
    *,
    sizes: Annotated[str, typer.Option(help="gpu: clip sizes in pixels, comma-separated.")] = "320x240,640x360",
    parts: Annotated[
        str, typer.Option(help="gpu: what to compare, and what else to measure, comma-separated.")
    ] = "ceiling,warm,ours,uniform,keyframes,questions,engine,death,precision,live,encoders",
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="gpu: start no measurement after this; the same command measures the rest."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Compare whole pipelines, from videos to answers, with the engine's ceiling and vLLM's own LLM.chat.

    Exits with 1 if a target is missed, except with gpu: its figures in FOLDER/gpu are not measured again.
    """
    if part == "gpu":
        from benchmarks.pipeline import gpu  # noqa: PLC0415

        benchmark = gpu.GpuBenchmark(
            model=known_names(model or "7b", tuple(gpu.MODELS), "--model")[0],
            questions=questions,
            sizes=sizes.split(","),
            rounds=rounds or 1,
            folder=folder,
            parts=known_names(parts, (*gpu.CONTENDERS, *gpu.PARTS), "--parts"),
            minutes=minutes,
        )
        tables, targets, facts = benchmark.run()
        show(tables, targets=targets, facts=facts, as_json=json)
        return
    from benchmarks.cores import Cores, bind  # noqa: PLC0415

    names, turns = known_names(model or "tiny,100m", MODELS, "--model"), rounds or 2
    cores = Cores.split()
    bind(os.getpid(), cores.host)  # before the services start, which inherit it
    with flow_services() as settings, progress() as update:
        if part == "describe":
            from benchmarks.pipeline import describe  # noqa: PLC0415

            report = describe.compare(settings, folder, cores, count=jobs, rounds=turns, show=update)
        else:
            from benchmarks.pipeline import comparison  # noqa: PLC0415

            report = comparison.compare(settings, folder, names, cores, jobs=jobs, rounds=turns, show=update)
    tables, targets, facts = report
    raise typer.Exit(show(tables, targets=targets, facts=facts, as_json=json))


def live(
    model: Model = "100m",
    frames: Annotated[str, typer.Option(help="Frames of history, comma-separated, even numbers.")] = "8,32,128,512",
    folder: Folder = FOLDER,
    rounds: Rounds = 5,
    minutes: Annotated[float, typer.Option(min=0.5, max=600, help="Length of the replayed stream.")] = 10,
    labels: Annotated[
        int, typer.Option(min=0, max=100_000, help="Labels to compare with classify's, with the tiny model only.")
    ] = 300,
    *,
    json: AsJson = False,
) -> None:
    """Measure live sessions: the time to an answer by history, a long stream, and agreement with classify."""
    from benchmarks.live.measure import run  # noqa: PLC0415

    lengths = whole_numbers(frames, "--frames")
    if any(length % 2 for length in lengths):
        raise typer.BadParameter(
            f"{frames!r} has an odd number, but frames are prefilled in pairs.", param_hint="--frames"
        )
    show(list(run(model, folder, frames=lengths, rounds=rounds, minutes=minutes, labels=labels)), as_json=json)


def serve(
    concurrency: Annotated[
        str, typer.Option(help="Numbers of concurrent clients, comma-separated.")
    ] = "1,2,4,8,16,32,64",
    requests: Annotated[
        int, typer.Option(min=8, max=10_000, help="Requests per number of clients; the first half is discarded.")
    ] = 400,
    model: Model = "tiny",
    folder: Folder = FOLDER,
    *,
    url: Annotated[
        str | None, typer.Option(help="Instead, upload clips to the service at this address, without a comparison.")
    ] = None,
    route: Annotated[Literal["classify", "analyze"], typer.Option(help="Route of the service at --url.")] = "classify",
    token: Annotated[
        str | None, typer.Option(envvar="REELABEL_SERVE_TOKEN", help="The token of the service at --url.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Send single questions to `reelabel serve`, and compare it with the flow on the same videos.

    Exits with 1 if a target is missed.
    """
    counts = whole_numbers(concurrency, "--concurrency")
    if url:
        from benchmarks.serve.client import Service  # noqa: PLC0415
        from benchmarks.serve.measure import measure_address  # noqa: PLC0415

        with progress() as update:
            service = Service(url.rstrip("/"), route, token)
            tables, targets = measure_address(service, folder, counts, requests=requests, show=update)
        raise typer.Exit(show(tables, targets=targets, as_json=json))
    with flow_services() as settings, progress() as update:
        from benchmarks.serve.measure import measure_serve  # noqa: PLC0415 - once Prefect is configured

        tables, targets = measure_serve(settings, folder, counts, requests=requests, model=model, show=update)
    raise typer.Exit(show(tables, targets=targets, as_json=json))


def scale(
    rows: Annotated[
        str, typer.Option(help="Numbers of jobs, comma-separated; ten million take 10 GB of disk.")
    ] = "100000,1000000",
    *,
    videos: Annotated[
        str | None,
        typer.Option(help="Instead, plan and answer the first number of jobs, on these numbers of videos."),
    ] = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Instead, measure runs that describe this many videos, one per job.")
    ] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="With --describe: only plan, without rows in the database.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure planning, audit, backfills and result writing by the number of jobs, without videos."""
    from benchmarks.scale import measure  # noqa: PLC0415

    counts = whole_numbers(rows, "--rows")
    if describe:
        tables = measure.scale_of_descriptions(counts, plan_only=plan_only)
    elif videos:
        tables = measure.scale_of_videos(counts[0], whole_numbers(videos, "--videos"))
    else:
        tables = measure.scale(counts)
    show(tables, as_json=json)


def peers(  # noqa: PLR0913 - a command's options
    peers: Annotated[
        str, typer.Option(help="Tools to compare with, comma-separated; each is installed in a separate environment.")
    ] = "plain,url,daft,pixeltable,ray_data,datachain",
    folder: Folder = FOLDER,
    clips: Annotated[
        str, typer.Option(help="Numbers of clips of 32 s, of 600 s and of an hour; 0 omits a length.")
    ] = "200,20,2",
    rounds: Rounds = 3,
    limit: Annotated[float, typer.Option(min=1, max=3600, help="Seconds after which a run is stopped.")] = 600,
    *,
    dirty: Annotated[
        int | None,
        typer.Option(min=8, max=10_000, help="Instead, extract frames of this many clips, some of them unreadable."),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(min=8, max=100_000, help="Instead, ask this many questions, eight about each clip, and again."),
    ] = None,
    descriptions: Annotated[
        int | None,
        typer.Option(
            min=8, max=10_000, help="Instead, describe this many clips, again with another label set, and search them."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Models that answer questions: tiny, 100m, or both, comma-separated.")] = ""
    "tiny",
    kill: Annotated[
        bool,
        typer.Option(
            "--kill", help="Instead of a second run, kill each tool at half of the answers, and let it continue."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Compare with other tools on the same videos of one S3 server: time, bytes, memory and lost rows.

    Exits with 1 if a target is missed.
    """
    from benchmarks.peers.frames import FrameVideos, dirty_case, frame_cases  # noqa: PLC0415
    from benchmarks.peers.measure import compare  # noqa: PLC0415
    from benchmarks.peers.peer import PEERS  # noqa: PLC0415
    from benchmarks.peers.report import report  # noqa: PLC0415

    names = known_names(peers, [peer.script for peer in PEERS], "--peers")
    makers: list[Callable[[StoreSettings], Videos]]
    if dirty:
        makers = [lambda store: FrameVideos([dirty_case(dirty)], folder, store)]
    elif questions:
        from benchmarks.peers.questions import QuestionVideos  # noqa: PLC0415 - the engine's settings take seconds

        models = known_names(model, MODELS, "--model")
        makers = [partial(QuestionVideos, name, questions, folder, dying=kill) for name in models]
    elif descriptions:
        from benchmarks.peers.descriptions import DescriptionVideos  # noqa: PLC0415 - as for questions

        makers = [lambda store: DescriptionVideos(descriptions, folder, store)]
    else:
        counts = [part.strip() for part in clips.split(",")]
        if len(counts) != len(("short", "long", "film")) or not all(count.isdecimal() for count in counts):
            raise typer.BadParameter(f"{clips!r} is not three whole numbers, such as 200,20,2.", param_hint="--clips")
        if not any(map(int, counts)):
            raise typer.BadParameter(f"{clips!r} has no clip; one of the numbers must not be 0.", param_hint="--clips")
        makers = [lambda store: FrameVideos(frame_cases(*map(int, counts)), folder, store)]
    outcomes = compare(names, folder, makers, rounds=rounds, limit_s=limit)
    tables, targets = report(outcomes, rounds=rounds)
    raise typer.Exit(show(tables, targets=targets, as_json=json))
