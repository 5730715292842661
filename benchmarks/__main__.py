"""The command line of the benchmarks: `python -m benchmarks NAME`. A command imports what it measures when it runs."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.harness import flow_services, progress, show
from flows.cli.command_group import ReelabelGroup
from infra.proxies import bypass_proxies

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.harness import Target

FOLDER = Path(".reelabel/bench")
_MODELS = ("tiny", "100m")
_MOST_QUESTIONS = 3  # about one clip

app = typer.Typer(
    name="python -m benchmarks",
    cls=ReelabelGroup,
    help="Reproduce the figures of the documentation.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Folder = Annotated[
    Path, typer.Option("--folder", help="Folder for generated clips and models; an hour of video takes 2 GB.")
]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="Measured repetitions; the median is reported.")]
Requests = Annotated[
    int | None, typer.Option(min=1, help="Requests per round; by default a few seconds' worth (settings, choice-mass).")
]


class Extraction(StrEnum):
    """Parts of the benchmark `extract`."""

    DECODE = "decode"
    FETCH = "fetch"
    RANGES = "ranges"
    STORE = "store"
    START = "start"
    TORCHCODEC = "torchcodec"


class Route(StrEnum):
    """Routes of the service."""

    CLASSIFY = "classify"
    ANALYZE = "analyze"


class Engine(StrEnum):
    """Parts of the benchmark `engine`."""

    SETTINGS = "settings"
    QUESTIONS = "questions"
    CHOICE_MASS = "choice-mass"
    WORDS = "words"


class Pipeline(StrEnum):
    """Parts of the benchmark `pipeline`."""

    CLASSIFY = "classify"
    DESCRIBE = "describe"
    GPU = "gpu"


def extract(
    part: Annotated[
        Extraction,
        typer.Argument(
            help="decode: a file, compared with other loaders and a lower bound; fetch: keyframes from S3; ranges: "
            "frames "
            "between keyframes from S3; store: the formats of frame files; start: a fresh process; torchcodec: uniform "
            "frames by TorchCodec, in a separate environment."
        ),
    ],
    lengths: Annotated[
        str | None, typer.Option("--lengths", help="Clip lengths in seconds, comma-separated (not start and ranges).")
    ] = None,
    folder: Folder = FOLDER,
    rounds: Rounds = 5,
    *,
    only: Annotated[
        str, typer.Option(help="ranges: only cases whose names contain this, such as gop250 or 3600s.")
    ] = "",
    clips: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="torchcodec: a folder of videos to measure instead."),
    ] = None,
    keyframes: Annotated[
        bool, typer.Option("--keyframes", help="torchcodec: compare our keyframes with its approximate seek.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure the extraction of sixteen frames of a video: time and bytes, compared with other loaders.

    Exits with 1 if a target is missed, for ranges, and for torchcodec without --keyframes.
    """
    if part is Extraction.TORCHCODEC:
        _torchcodec(lengths or "30,600", folder, rounds, clips, keyframes=keyframes, as_json=json)
    if part is Extraction.RANGES:
        from benchmarks.extraction.remote import cases, ranges  # noqa: PLC0415

        wanted = [case for case in cases() if only in case.name]
        if not wanted:
            names = ", ".join(case.name for case in cases())
            raise typer.BadParameter(f"No case's name contains {only!r}; there are {names}.", param_hint="--only")
        with progress("Measuring; the first run generates the clips"):
            tables, targets = ranges(wanted, folder, rounds=rounds)
        raise typer.Exit(show(tables, targets=targets, as_json=json))
    from benchmarks.extraction import files, remote, store  # noqa: PLC0415

    with progress("Measuring; the first run generates the clips"):
        if part is Extraction.START:
            tables = files.start(folder, rounds=rounds)
        elif part is Extraction.STORE:
            tables = store.store(whole_numbers(lengths or "60", "--lengths")[0], folder, rounds=rounds)
        else:
            measure = files.decode if part is Extraction.DECODE else remote.fetch
            tables = measure(whole_numbers(lengths or "30,600,3600", "--lengths"), folder, rounds=rounds)
    show(tables, as_json=json)


def _torchcodec(
    lengths: str,
    folder: Path,
    rounds: int,
    clips: Path | None,
    *,
    keyframes: bool,
    as_json: bool,
) -> None:
    from benchmarks.extraction.torchcodec import compare, compare_keyframes  # noqa: PLC0415
    from benchmarks.media.clips import bench_clips  # noqa: PLC0415
    from tasks.manifest.importers.videos import VIDEO_SUFFIXES, suffix_of  # noqa: PLC0415

    targets: Sequence[Target] = ()
    with progress("Installing TorchCodec, and measuring; the first time takes minutes"):
        if clips:
            wanted = sorted(path for path in clips.iterdir() if suffix_of(path.name) in VIDEO_SUFFIXES)
        else:
            wanted = [clip.make(folder) for clip in bench_clips(whole_numbers(lengths, "--lengths"))]
        if keyframes:
            tables = compare_keyframes(wanted, folder, rounds=rounds)
        else:
            tables, targets = compare(wanted, folder, rounds=rounds)
    raise typer.Exit(show(tables, targets=targets, as_json=as_json))


def engine(
    part: Annotated[
        Engine,
        typer.Argument(
            help="settings: a sweep, whose fastest is the ceiling of any pipeline; questions: 1, 2, 4 and 8 about one "
            "video; choice-mass: answers with the probability of all choices, and without; words: 64-token answers, "
            "compared with LLM.generate."
        ),
    ] = Engine.SETTINGS,
    model: Annotated[str | None, typer.Option(help="tiny or 100m; with settings, both, comma-separated.")] = None,
    folder: Folder = FOLDER,
    requests: Requests = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Measured repetitions; defaults to 3 or 15.")
    ] = None,
    *,
    frames: Annotated[int, typer.Option(min=1, max=512, help="questions: frames per video.")] = 32,
    json: AsJson = False,
) -> None:
    """Measure the engine alone."""
    from benchmarks.engine import sweep  # noqa: PLC0415

    if part is Engine.SETTINGS:
        names = known_names(model or "tiny,100m", _MODELS, "--model")
        tables, facts = sweep.settings(names, folder, requests=requests, rounds=rounds or 3)
        show(tables, facts=facts, as_json=json)
        return
    targets: list[Target] = []
    with progress("Loading the model and answering"):
        if part is Engine.WORDS:
            from benchmarks.engine import words  # noqa: PLC0415

            tables, targets = words.compare(model or "tiny", folder, requests=requests, rounds=rounds or 5)
        elif part is Engine.QUESTIONS:
            tables = sweep.questions(model or "tiny", folder, frames=frames, rounds=rounds or 15)
        else:
            tables = sweep.scoring(model or "tiny", folder, requests=requests, rounds=rounds or 15)
    show(tables, targets=targets, as_json=json)


def pipeline(  # noqa: PLR0913 - a command's options
    part: Annotated[
        Pipeline,
        typer.Argument(
            help="classify: the flow, on CPUs; describe: the flow, with a SigLIP base, and its model and extraction "
            "alone; gpu: the same as classify on a GPU, without services, and its engine, live sessions and image-text "
            "encoders."
        ),
    ] = Pipeline.CLASSIFY,
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
    questions: Annotated[
        int | None,
        typer.Option(
            min=1, help="classify: questions per video, 1 to 3. gpu: questions per clip size, one per clip; 1990."
        ),
    ] = None,
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

    Exits with 1 if a target is missed. With gpu, figures in FOLDER/gpu are not measured again.
    """
    if part is Pipeline.GPU:
        from benchmarks.pipeline.gpu import CONTENDERS, MODELS, PARTS, GpuBenchmark  # noqa: PLC0415

        benchmark = GpuBenchmark(
            model=known_names(model or "7b", tuple(MODELS), "--model")[0],
            questions=questions or 1990,
            sizes=sizes.split(","),
            rounds=rounds or 1,
            folder=folder,
            parts=known_names(parts, (*CONTENDERS, *PARTS), "--parts"),
            minutes=minutes,
        )
        tables, targets, facts = benchmark.run()
        show(tables, targets=targets, facts=facts, as_json=json)
        return
    names, asked, turns = known_names(model or "tiny,100m", _MODELS, "--model"), questions or 1, rounds or 2
    if asked > _MOST_QUESTIONS:
        raise typer.BadParameter(f"A clip has {_MOST_QUESTIONS} questions.", param_hint="--questions")
    with flow_services() as settings, progress() as update:
        if part is Pipeline.DESCRIBE:
            from benchmarks.pipeline import describe  # noqa: PLC0415

            report = describe.compare(settings, folder, count=jobs, rounds=turns, show=update)
        else:
            from benchmarks.pipeline import comparison  # noqa: PLC0415

            report = comparison.compare(settings, folder, names, jobs=jobs, questions=asked, rounds=turns, show=update)
    tables, targets, facts = report
    raise typer.Exit(show(tables, targets=targets, facts=facts, as_json=json))


def live(
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "100m",
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
    from benchmarks.live.bench import run  # noqa: PLC0415

    lengths = whole_numbers(frames, "--frames")
    if any(length % 2 for length in lengths):
        raise typer.BadParameter(
            f"{frames!r} has an odd number, but frames are prefilled in pairs.", param_hint="--frames"
        )
    tables = run(model, folder, frames=lengths, rounds=rounds, minutes=minutes, labels=labels)
    show(tables, as_json=json)


def serve(  # noqa: PLR0913 - a command's options
    concurrency: Annotated[
        str, typer.Option(help="Numbers of concurrent clients, comma-separated.")
    ] = "1,2,4,8,16,32,64",
    requests: Annotated[
        int, typer.Option(min=8, max=10_000, help="Requests per number of clients; the first half is discarded.")
    ] = 400,
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "tiny",
    folder: Folder = FOLDER,
    *,
    url: Annotated[
        str | None, typer.Option(help="Instead, upload clips to the service at this address, without a comparison.")
    ] = None,
    route: Annotated[Route, typer.Option(help="Route of the service at --url.")] = Route.CLASSIFY,
    token: Annotated[
        str | None, typer.Option(envvar="REELABEL_SERVE_TOKEN", help="The token of the service at --url.")
    ] = None,
    warm: Annotated[bool, typer.Option("--warm", help="Let the service use the flow's cached frames.")] = False,
    json: AsJson = False,
) -> None:
    """Send single questions to `reelabel serve`, and compare it with the flow on the same videos.

    Exits with 1 if a target is missed.
    """
    counts, name = whole_numbers(concurrency, "--concurrency"), known_names(model, _MODELS, "--model")[0]
    if url:
        from benchmarks.serve.client import Service  # noqa: PLC0415
        from benchmarks.serve.measure import measure_address  # noqa: PLC0415

        with progress() as update:
            service = Service(url.rstrip("/"), route, token)
            tables, targets = measure_address(service, folder, counts, requests=requests, show=update)
        raise typer.Exit(show(tables, targets=targets, as_json=json))
    with flow_services() as settings, progress() as update:
        from benchmarks.serve.measure import measure_serve  # noqa: PLC0415 - once Prefect is configured

        tables, targets = measure_serve(settings, folder, counts, requests=requests, model=name, warm=warm, show=update)
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
    """Measure planning, leasing, audit, backfills and result writing by the number of jobs, without videos."""
    from benchmarks.scale import measure  # noqa: PLC0415

    counts = whole_numbers(rows, "--rows")
    if describe:
        tables = measure.scale_of_descriptions(counts, plan_only=plan_only)
    elif videos:
        tables = measure.scale_of_videos(counts[0], whole_numbers(videos, "--videos"))
    else:
        tables = measure.scale(counts)
    show(tables, as_json=json)


def trade(
    clips: Annotated[int, typer.Option(min=160, max=100_000, help="Clips, one question each.")] = 1_120,
    seed: Annotated[int, typer.Option(min=0, help="The same seed generates the same clips.")] = 40_000,
    *,
    keep: Annotated[str | None, typer.Option(help="Folder in which to keep the clips for next time.")] = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name.", show_default="the demo's")] = None,
    make: Annotated[str | None, typer.Option(help="Only write clips and manifest to this folder.")] = None,
    brief: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=100_000,
            help="Instead, compare relevant with other samplers on this many one-minute clips, three seconds of which "
            "answer the question.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Measure the accuracy that keyframes lose and the work that they save, by question and number of keyframes."""
    from benchmarks.trade import measure  # noqa: PLC0415
    from benchmarks.trade.clips import make_trade  # noqa: PLC0415
    from tasks.model.identity import TINY_MODEL  # noqa: PLC0415

    name = model or str(TINY_MODEL)
    if make:
        written = make_trade(Path(make), clips=clips, seed=seed)
        typer.echo(f"Wrote {len(written):,} clips and their manifest to {make}.")
        return
    if brief:
        tables = measure.run_relevance(clips=brief, seed=seed, keep_in=keep, model=name)
    else:
        tables = measure.run(clips=clips, seed=seed, keep_in=keep, model=name)
    show(tables, as_json=json)


def scenes(
    folder: Folder = FOLDER,
    rounds: Rounds = 1,
    *,
    methods: Annotated[
        str, typer.Option(help="Methods to compare, comma-separated; PySceneDetect is always included.")
    ] = "auto,ema,published",
    clips: Annotated[
        str, typer.Option(help="Kinds of clips, comma-separated; set is forty generated ones.")
    ] = "real,cuts,motion,gradual,set",
    sizes: Annotated[str, typer.Option(help="Sizes of the generated clips: small, large or both.")] = "small,large",
    json: AsJson = False,
) -> None:
    """Compare methods that find scene changes, on generated clips and on real ones, which this command downloads.

    Exits with 1 if a target is missed.
    """
    from benchmarks.scenes.contenders import OURS  # noqa: PLC0415
    from benchmarks.scenes.measure import GROUPS, run  # noqa: PLC0415

    wanted = known_names(methods, OURS, "--methods")
    kept = known_names(sizes, ("small", "large"), "--sizes")
    groups = known_names(clips, GROUPS, "--clips")
    tables, targets = run(folder, wanted, rounds=rounds, groups=groups, sizes=kept)
    raise typer.Exit(show(tables, targets=targets, as_json=json))


def search(
    vectors: Annotated[
        str, typer.Option(help="Numbers of vectors, comma-separated; ten million of 768 take 30 GB of disk.")
    ] = "1000000",
    folder: Folder = FOLDER,
    dimensions: Annotated[int, typer.Option(min=136, max=4096, help="Size of a vector.")] = 768,
    queries: Annotated[int, typer.Option(min=2, max=1000, help="Queries of each kind.")] = 100,
    *,
    json: AsJson = False,
) -> None:
    """Search synthetic embeddings: time, memory, and how many of the best frames are found.

    Exits with 1 if a target is missed.
    """
    from benchmarks.search.measure import run  # noqa: PLC0415

    tables, targets = run(folder, whole_numbers(vectors, "--vectors"), dimensions=dimensions, queries=queries)
    raise typer.Exit(show(tables, targets=targets, as_json=json))


def peers(  # noqa: PLR0913 - a command's options
    peers: Annotated[
        str, typer.Option(help="Tools to compare with, comma-separated; each is installed in a separate environment.")
    ] = "plain,url,daft,pixeltable,ray_data,datachain,nemo_curator",
    folder: Folder = FOLDER,
    clips: Annotated[
        str, typer.Option(help="Numbers of clips of 32 s, of 600 s and of an hour; 0 omits a length.")
    ] = "200,20,2",
    rounds: Rounds = 3,
    limit: Annotated[float, typer.Option(min=1, max=3600, help="Seconds after which a run is stopped.")] = 600,
    *,
    brief: Annotated[bool, typer.Option("--brief", help="8 clips of 32 s, 2 of 600 s and one of an hour.")] = False,
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
    from benchmarks.peers.cases import QUESTIONS_PER_VIDEO  # noqa: PLC0415
    from benchmarks.peers.peer import PEERS  # noqa: PLC0415
    from benchmarks.peers.report import report  # noqa: PLC0415
    from benchmarks.peers.runner import Comparison  # noqa: PLC0415

    names = known_names(peers, [peer.script for peer in PEERS], "--peers")
    comparison = Comparison(names=names, folder=folder, rounds=rounds, limit_s=limit)
    if dirty:
        outcomes = comparison.dirty_frames(dirty)
    elif questions:
        models = known_names(model, _MODELS, "--model")
        outcomes = comparison.questions(models, questions // QUESTIONS_PER_VIDEO, dying=kill)
    elif descriptions:
        outcomes = comparison.descriptions(descriptions)
    else:
        counts = [part.strip() for part in ("8,2,1" if brief else clips).split(",")]
        if len(counts) != len(("short", "long", "film")) or not all(count.isdecimal() for count in counts):
            raise typer.BadParameter(f"{clips!r} is not three whole numbers, such as 200,20,2.", param_hint="--clips")
        outcomes = comparison.frames(*map(int, counts))
    tables, targets = report(outcomes, rounds=rounds)
    raise typer.Exit(show(tables, targets=targets, as_json=json))


def conformance(
    *,
    only: Annotated[str, typer.Option(help="Check only files of this kind, such as avi or avi/mpeg4.")] = "",
    write: Annotated[str | None, typer.Option(help="Also write the document to this file.")] = None,
    against_vllm: Annotated[
        bool, typer.Option("--against-vllm", help="Compare samplers with vLLM's own loaders instead, on files.")
    ] = False,
    clips: Annotated[
        Path | None, typer.Option(help="With --against-vllm: a folder of videos to compare instead of generated ones.")
    ] = None,
) -> None:
    """Compare the frames of every container, codec and structure with a linear decode.

    Exits with 1 if a file is not exact, or differs from vLLM's selection for no known reason.
    """
    from benchmarks.exactness import report  # noqa: PLC0415

    if against_vllm and (only or write):
        raise typer.BadParameter(
            "It compares its own files; leave out --only and --write.", param_hint="--against-vllm"
        )
    if clips and not against_vllm:
        raise typer.BadParameter("It needs --against-vllm.", param_hint="--clips")
    code = report.agreement_with_vllm(clips) if against_vllm else report.conformance(only=only, write=write)
    raise typer.Exit(code)


def fuzz(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Number of damaged files to generate.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="The same seed generates the same files.")] = 0,
    *,
    only: Annotated[str, typer.Option(help="Damage only files of this kind, such as avi or avi/mpeg4.")] = "",
    json: AsJson = False,
    keep: Annotated[str | None, typer.Option(help="Folder for files with wrong frames.")] = None,
) -> None:
    """Damage files of every container and compare extracted frames with a linear decode.

    Exits with 1 if frames differ.
    """
    from benchmarks.exactness.report import fuzz as run  # noqa: PLC0415

    raise typer.Exit(run(count, seed=seed, only=only, as_json=json, keep=keep))


# Each command with an example for its help.
EXAMPLES: dict[Callable[..., None], str] = {
    extract: "extract decode --lengths 30,600",
    engine: "engine settings --model tiny --rounds 5",
    pipeline: "pipeline gpu --questions 480 --sizes 320x240 --minutes 9",
    live: "live --model tiny --frames 8,32 --minutes 1 --labels 30",
    serve: "serve --concurrency 1,16 --requests 60",
    scale: "scale --rows 100000,1000000",
    trade: "trade --json",
    scenes: "scenes --methods auto,ema --sizes small",
    search: "search --vectors 100000",
    peers: "peers --brief --peers daft",
    conformance: "conformance --write docs/conformance.md",
    fuzz: "fuzz --count 5000 --seed 7",
}
for command, example in EXAMPLES.items():
    app.command(epilog=f"Example: python -m benchmarks {example}")(command)


def known_names(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    """Split names by commas.

    Raises:
        typer.BadParameter: A name is unknown.
    """
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}.", param_hint=option)
    return names


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Split positive whole numbers by commas.

    Raises:
        typer.BadParameter: The text is anything else.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(
            f"{text!r} is not a list of positive whole numbers, such as 30,600.", param_hint=option
        )
    return tuple(map(int, parts))


def main() -> None:
    """Run a benchmark."""
    bypass_proxies()
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    app()


if __name__ == "__main__":
    main()
