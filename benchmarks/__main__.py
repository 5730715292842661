"""The command line of the benchmarks: `python -m benchmarks NAME`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.command_group import ReelabelGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

_FOLDER = Path(".reelabel/bench")

_MOST_HOURS = 24

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
ClipFolder = Annotated[
    Path, typer.Option("--folder", help="Folder that keeps generated clips; an hour of video takes 2 GB.")
]
ModelFolder = Annotated[Path, typer.Option("--folder", help="Folder that keeps generated model folders.")]
Lengths = Annotated[str, typer.Option("--lengths", help="Clip lengths in seconds, comma-separated.")]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="Measured repetitions; the median is reported.")]
Plot = Annotated[str | None, typer.Option(help="Also draw the results to this SVG file.")]


@app.command(epilog="Example: python -m benchmarks decode --lengths 30,600 --plot decode.svg")
def decode(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = _FOLDER,
    rounds: Rounds = 7,
    *,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Time decoding against other loaders, and against decoding the picked packets alone."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.decode(_numbers(lengths, "--lengths"), folder, rounds=rounds, as_json=json, plot=plot)


@app.command(epilog="Example: python -m benchmarks torchcodec --lengths 30 --rounds 3")
def torchcodec(
    lengths: Lengths = "30,600",
    folder: ClipFolder = _FOLDER,
    rounds: Rounds = 5,
    *,
    at_model_size: Annotated[
        bool, typer.Option("--at-model-size", help="Let both scale frames to the model's size.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Time uniform sampling beside TorchCodec at its best settings, in an environment that this command makes.

    Exit with 1 where ours is less than 1.5 times as fast, or the frames are not those of the same times.
    """
    from benchmarks.torchcodec.report import compare  # noqa: PLC0415

    seconds = _numbers(lengths, "--lengths")
    raise typer.Exit(compare(seconds, folder, rounds=rounds, at_model_size=at_model_size, as_json=json))


@app.command(epilog="Example: python -m benchmarks fetch --lengths 30,600 --plot bytes.svg")
def fetch(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = _FOLDER,
    rounds: Rounds = 5,
    *,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure the bytes read from an S3 server per clip, and the time they take."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.fetch(_numbers(lengths, "--lengths"), folder, rounds=rounds, as_json=json, plot=plot)


@app.command(epilog="Example: python -m benchmarks ranges --rounds 3")
def ranges(folder: ClipFolder = _FOLDER, rounds: Rounds = 5, *, json: AsJson = False) -> None:
    """Compare frames between keyframes read from an S3 server by ranges with those of a download.

    Exit with 1 where a target is missed.
    """
    from benchmarks.extraction import report  # noqa: PLC0415

    raise typer.Exit(report.ranges(folder, rounds=rounds, as_json=json))


@app.command(epilog="Example: python -m benchmarks survey --videos 200")
def survey(
    folder: ClipFolder = _FOLDER,
    videos: Annotated[int, typer.Option(min=1, max=100_000, help="Videos on the store.")] = 1000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the manifest of which a sample is surveyed.")] = 1_000_000,
    sample: Annotated[int, typer.Option(min=1, help="Clips drawn from it.")] = 2000,
    *,
    json: AsJson = False,
) -> None:
    """Time surveys of a manifest whose videos are on an S3 server: of all videos, and of a sample."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.survey(folder, videos=videos, rows=rows, sample=sample, as_json=json)


@app.command(epilog="Example: python -m benchmarks store --json")
def store(
    length: Annotated[int, typer.Option(min=1, max=3600, help="Length of the clips in seconds.")] = 60,
    folder: ClipFolder = _FOLDER,
    rounds: Rounds = 7,
    *,
    json: AsJson = False,
) -> None:
    """Compare the formats of frame files: bytes, and milliseconds to and from an S3 server."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.store(length, folder, rounds=rounds, as_json=json)


@app.command(epilog="Example: python -m benchmarks similar --threshold 0.9")
def similar(
    threshold: Annotated[float, typer.Option(min=0.01, max=0.99, help="Drop frames more similar than this.")] = 0.95,
    folder: ClipFolder = _FOLDER,
    *,
    json: AsJson = False,
) -> None:
    """Count the frames that drop_similar keeps of static and of moving scenes."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.similar(folder, threshold=threshold, as_json=json)


@app.command(epilog="Example: python -m benchmarks cache --entries 1000,10000")
def cache(
    entries: Annotated[str, typer.Option(help="Numbers of files, ascending, comma-separated.")] = "10000,100000",
    *,
    store: Annotated[
        bool, typer.Option("--store", help="Use the configured store, not a folder; filling S3 may take an hour.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Measure time and memory of `cache ls` and `cache gc` by the number of files."""
    from benchmarks.extraction import report  # noqa: PLC0415

    report.cache(_numbers(entries, "--entries"), on_store=store, as_json=json)


@app.command(epilog="Example: python -m benchmarks engine --models tiny --rounds 5")
def engine(
    models: Annotated[str, typer.Option(help="Any of tiny and 100m, comma-separated.")] = "tiny,100m",
    folder: ModelFolder = _FOLDER,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests per round; by default a few seconds' worth.")
    ] = None,
    rounds: Rounds = 3,
    *,
    json: AsJson = False,
) -> None:
    """Sweep the settings of the engine alone; the fastest is the ceiling of any pipeline."""
    from benchmarks.engine import report  # noqa: PLC0415

    names = [name.strip() for name in models.split(",")]
    report.engine(names, folder, requests=requests, rounds=rounds, as_json=json)


@app.command(epilog="Example: python -m benchmarks questions --frames 32")
def questions(
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "tiny",
    frames: Annotated[int, typer.Option(min=1, max=512, help="Frames per video.")] = 32,
    folder: ModelFolder = _FOLDER,
    rounds: Rounds = 15,
    *,
    json: AsJson = False,
) -> None:
    """Compare the cost of 1, 2, 4 and 8 questions about one video."""
    from benchmarks.engine import report  # noqa: PLC0415

    report.questions(model, folder, frames=frames, rounds=rounds, as_json=json)


@app.command(epilog="Example: python -m benchmarks live --model tiny --frames 8,32 --minutes 1 --labels 30")
def live(
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "100m",
    frames: Annotated[str, typer.Option(help="Frames of history, comma-separated, even numbers.")] = "8,32,128,512",
    folder: ModelFolder = _FOLDER,
    rounds: Rounds = 5,
    minutes: Annotated[float, typer.Option(min=0.5, max=600, help="Length of the stream that is replayed.")] = 10,
    labels: Annotated[
        int, typer.Option(min=0, max=100_000, help="Labels to compare with classify's, with the tiny model only.")
    ] = 300,
    *,
    json: AsJson = False,
) -> None:
    """Measure live sessions: the time to an answer by history, a long stream, and agreement with classify."""
    from benchmarks.live import report  # noqa: PLC0415

    lengths = _numbers(frames, "--frames")
    if any(length % 2 for length in lengths):
        raise typer.BadParameter(f"{frames!r} has an odd number, but frames are read in pairs.", param_hint="--frames")
    report.live(model, folder, frames=lengths, rounds=rounds, minutes=minutes, labels=labels, as_json=json)


@app.command(epilog="Example: python -m benchmarks pipeline --model tiny --jobs 60 --rounds 1")
def pipeline(
    model: Annotated[str, typer.Option(help="tiny, 100m, or both.")] = "both",
    folder: ClipFolder = _FOLDER,
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


@app.command(epilog="Example: python -m benchmarks serve --concurrency 1,16 --requests 60")
def serve(
    concurrency: Annotated[
        str, typer.Option(help="Numbers of clients that ask at once, comma-separated.")
    ] = "1,2,4,8,16,32,64",
    requests: Annotated[
        int, typer.Option(min=8, max=10_000, help="Requests per number of clients; the first half is thrown away.")
    ] = 400,
    model: Annotated[str, typer.Option(help="tiny or 100m.")] = "tiny",
    folder: ClipFolder = _FOLDER,
    *,
    warm: Annotated[bool, typer.Option("--warm", help="Let the service find the flow's frames in the cache.")] = False,
    json: AsJson = False,
) -> None:
    """Ask `reelabel serve` single questions, and compare with the flow on the same videos.

    Exit with 1 where a target is missed.
    """
    from benchmarks.serve.report import serve as run  # noqa: PLC0415

    counts = [int(count) for count in _numbers(concurrency, "--concurrency")]
    raise typer.Exit(run(counts, folder, requests=requests, model=model, warm=warm, as_json=json))


@app.command(epilog="Example: python -m benchmarks gpu --model tiny --questions 24 --sizes 320x240")
def gpu(
    model: Annotated[str, typer.Option(help="7b or 3b (Qwen2.5-VL with random weights), or tiny.")] = "7b",
    questions: Annotated[int, typer.Option(min=1, help="Questions per clip size, one per clip.")] = 1990,
    sizes: Annotated[str, typer.Option(help="Clip sizes in pixels, comma-separated.")] = "320x240,640x360",
    contenders: Annotated[
        str, typer.Option(help="What to compare, comma-separated.")
    ] = "ceiling,ours,keyframes,uniform",
    rounds: Rounds = 1,
    folder: ClipFolder = _FOLDER,
    *,
    json: AsJson = False,
) -> None:
    """Compare pipelines on a GPU, without services: extraction, frame files in a folder, the engine's process."""
    from benchmarks.pipeline.gpu import GpuBenchmark, run  # noqa: PLC0415

    benchmark = GpuBenchmark(
        model=model,
        questions=questions,
        sizes=tuple(sizes.split(",")),
        contenders=tuple(contenders.split(",")),
        rounds=rounds,
        folder=folder,
    )
    run(benchmark, as_json=json)


@app.command(epilog="Example: python -m benchmarks scale --rows 100000,1000000 --plot scale.svg")
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
        bool, typer.Option("--describe", help="Instead, measure runs that describe so many videos, one a job.")
    ] = False,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure planning, leasing, audit, backfills and result writing by the number of jobs, without videos."""
    from benchmarks.scale import report  # noqa: PLC0415

    counts = _numbers(rows, "--rows")
    if describe:
        report.scale_of_descriptions(counts, as_json=json)
    elif videos:
        report.scale_of_videos(counts[0], _numbers(videos, "--videos"), as_json=json)
    else:
        report.scale(counts, as_json=json, plot=plot)


@app.command(epilog="Example: python -m benchmarks trade --json")
def trade(  # noqa: PLR0913 - a command's options
    clips: Annotated[int, typer.Option(min=160, max=100_000, help="Clips, one question each.")] = 1_120,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same clips.")] = 40_000,
    *,
    keep: Annotated[str | None, typer.Option(help="Folder that keeps the clips for the next time.")] = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name; by default the demo's.")] = None,
    make: Annotated[str | None, typer.Option(help="Only write clips and manifest to this folder.")] = None,
    pruning: Annotated[
        bool,
        typer.Option("--pruning", help="Measure what video_pruning_rate does to tokens, speed and answers instead."),
    ] = False,
    brief: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=100_000,
            help="Instead, ask about so many clips of a minute, three seconds of which answer the question, with the "
            "sampler relevant and others.",
        ),
    ] = None,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Measure what keyframes cost in accuracy and save in work, by question and number of keyframes."""
    from benchmarks.trade import measure  # noqa: PLC0415

    if make:
        measure.write_clips(Path(make), clips=clips, seed=seed)
    elif brief:
        measure.run_relevance(clips=brief, seed=seed, keep_in=keep, model=model, as_json=json)
    elif pruning:
        measure.run_pruning(clips=clips, seed=seed, keep_in=keep, model=model, as_json=json)
    else:
        measure.run(clips=clips, seed=seed, keep_in=keep, model=model, as_json=json, plot=plot)


@app.command(epilog="Example: python -m benchmarks scenes --methods auto,ema --sizes small")
def scenes(
    folder: ClipFolder = _FOLDER,
    rounds: Rounds = 1,
    *,
    methods: Annotated[
        str, typer.Option(help="What to compare, comma-separated; PySceneDetect is in any case.")
    ] = "auto,index,ema,published,content,transnetv2",
    sizes: Annotated[str, typer.Option(help="Sizes of the made clips: small, large or both.")] = "small,large",
    json: AsJson = False,
) -> None:
    """Compare methods that find changes of scene, on made and on real clips, which this command installs.

    Exit with 1 where a target is missed.
    """
    from benchmarks.scenes.contenders import LIBRARIES, OURS  # noqa: PLC0415
    from benchmarks.scenes.report import run  # noqa: PLC0415

    wanted = _names(methods, OURS, "--methods")
    kept = _names(sizes, ("small", "large"), "--sizes")
    raise typer.Exit(run(folder, (*wanted, *LIBRARIES), rounds=rounds, sizes=kept, as_json=json))


@app.command(epilog="Example: python -m benchmarks describe --videos 8 --rounds 1")
def describe(
    videos: Annotated[int, typer.Option(min=2, max=10_000, help="Clips of 30 to 45 s.")] = 24,
    folder: ClipFolder = _FOLDER,
    rounds: Rounds = 3,
    *,
    json: AsJson = False,
) -> None:
    """Compare the flow describe, cold and with cached frames, with its towers alone and its extraction alone.

    Exit with 1 where a target is missed.
    """
    from benchmarks.describe import report  # noqa: PLC0415

    raise typer.Exit(report.towers(videos, folder, rounds=rounds, as_json=json))


@app.command(epilog="Example: python -m benchmarks film --hours 0.5,3")
def film(
    hours: Annotated[str, typer.Option(help="Lengths of films in hours, comma-separated.")] = "0.25,3",
    folder: ClipFolder = _FOLDER,
    *,
    json: AsJson = False,
) -> None:
    """Describe long films of small pictures, and print the most memory that each process takes."""
    from benchmarks.describe import report  # noqa: PLC0415

    lengths = [_number(each, "--hours") for each in hours.split(",")]
    report.film(lengths, folder, as_json=json)


@app.command(epilog="Example: python -m benchmarks retag --videos 1000")
def retag(
    videos: Annotated[
        str, typer.Option(help="Numbers of videos, comma-separated; a hundred thousand take minutes to store.")
    ] = "1000,10000",
    seconds: Annotated[float, typer.Option(min=1, help="Length of a video; a chunk of 10 s has 16 frames.")] = 10.0,
    folder: ModelFolder = _FOLDER,
    *,
    outlines_only: Annotated[
        bool,
        typer.Option("--outlines-only", help="Store what an earlier run leaves for a shard, instead of that run."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Describe videos whose embeddings are stored, by one bank and then by another, with real services."""
    from benchmarks.describe import report  # noqa: PLC0415

    counts = _numbers(videos, "--videos")
    report.retag(counts, folder, seconds=seconds, outlines_only=outlines_only, as_json=json)


@app.command(epilog="Example: python -m benchmarks search --vectors 100000 --peers faiss")
def search(
    vectors: Annotated[
        str, typer.Option(help="Numbers of vectors, comma-separated; ten million of 768 take 30 GB of disk.")
    ] = "1000000",
    folder: ClipFolder = _FOLDER,
    dimensions: Annotated[int, typer.Option(min=136, max=4096, help="Size of a vector.")] = 768,
    queries: Annotated[int, typer.Option(min=2, max=1000, help="Queries of each kind.")] = 100,
    *,
    peers: Annotated[
        str, typer.Option(help="Libraries to compare with, which this command installs: any of faiss,lancedb, or none.")
    ] = "none",
    json: AsJson = False,
) -> None:
    """Search made embeddings by the index: time, memory, and how many of the best frames are found.

    Exit with 1 where a target is missed.
    """
    from benchmarks.search.peers import PEERS  # noqa: PLC0415
    from benchmarks.search.report import run  # noqa: PLC0415

    wanted = () if peers == "none" else _names(peers, PEERS, "--peers")
    counts = _numbers(vectors, "--vectors")
    raise typer.Exit(run(folder, counts, dimensions=dimensions, queries=queries, peers=wanted, as_json=json))


@app.command(epilog="Example: python -m benchmarks peers --brief --peers daft --plot peers.svg")
def peers(  # noqa: PLR0913 - a command's options
    peers: Annotated[
        str, typer.Option(help="What to compare with, comma-separated; each is installed in an environment of its own.")
    ] = "plain,url,daft,pixeltable,ray_data,datachain,nemo_curator",
    folder: ClipFolder = _FOLDER,
    clips: Annotated[
        str, typer.Option(help="How many clips of 32 s, of 600 s and of an hour; 0 leaves a length out.")
    ] = "200,20,2",
    rounds: Rounds = 3,
    limit: Annotated[float, typer.Option(min=1, max=3600, help="Seconds after which a run is ended.")] = 600,
    *,
    brief: Annotated[bool, typer.Option("--brief", help="8 clips of 32 s, 2 of 600 s and one of an hour.")] = False,
    dirty: Annotated[
        int | None,
        typer.Option(min=8, max=10_000, help="Instead, ask for frames of so many clips, of which some cannot be read."),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(min=8, max=100_000, help="Instead, ask so many questions, eight about each clip, and again."),
    ] = None,
    model: Annotated[str, typer.Option(help="Who answers them: tiny, 100m, or both, comma-separated.")] = "tiny",
    kill: Annotated[
        bool, typer.Option("--kill", help="Also kill each halfway through the questions, and let it continue.")
    ] = False,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Compare with other tools on the same videos of one S3 server: time, bytes, memory, rows that are lost.

    Exit with 1 where a target is missed.
    """
    from benchmarks.peers.cases import QUESTIONS_PER_VIDEO  # noqa: PLC0415
    from benchmarks.peers.peer import PEERS  # noqa: PLC0415
    from benchmarks.peers.report import print_report  # noqa: PLC0415
    from benchmarks.peers.runner import Comparison  # noqa: PLC0415

    names = _names(peers, [peer.script for peer in PEERS], "--peers")
    comparison = Comparison(names=names, folder=folder, rounds=rounds, limit_s=limit)
    if dirty:
        outcomes = comparison.dirty_frames(dirty)
    elif questions:
        models = _names(model, ("tiny", "100m"), "--model")
        outcomes = comparison.questions(models, questions // QUESTIONS_PER_VIDEO, dying=kill)
    else:
        outcomes = comparison.frames(_lengths("8,2,1" if brief else clips, "--clips"))
    raise typer.Exit(print_report(outcomes, rounds=rounds, as_json=json, plot=plot))


@app.command(epilog="Example: python -m benchmarks fuzz --count 5000 --seed 7")
def fuzz(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Damaged files to make.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same files.")] = 0,
    *,
    only: Annotated[str, typer.Option(help="Damage only files of this kind, such as avi or avi/mpeg4.")] = "",
    json: AsJson = False,
    keep: Annotated[str | None, typer.Option(help="Folder for the files with a fault.")] = None,
) -> None:
    """Damage files of every container and compare extracted frames with a linear decode.

    Exit with 1 where frames differ.
    """
    from benchmarks.exactness.report import fuzz as run  # noqa: PLC0415

    raise typer.Exit(run(count, seed=seed, only=only, as_json=json, keep=keep))


@app.command(epilog="Example: python -m benchmarks conformance --write docs/conformance.md")
def conformance(
    *,
    only: Annotated[str, typer.Option(help="Check only files of this kind, such as avi or avi/mpeg4.")] = "",
    write: Annotated[str | None, typer.Option(help="Also write the document to this file.")] = None,
    against_vllm: Annotated[
        bool, typer.Option("--against-vllm", help="Compare samplers with vLLM's own loaders instead, on files.")
    ] = False,
) -> None:
    """Compare the frames of every container, codec and structure with a linear decode.

    Exit with 1 where a file is not exact, or differs from vLLM's choice for no known reason.
    """
    from benchmarks.exactness.report import agreement_with_vllm  # noqa: PLC0415
    from benchmarks.exactness.report import conformance as run  # noqa: PLC0415

    if against_vllm and (only or write):
        raise typer.BadParameter(
            "It compares files of its own; leave out --only and --write.", param_hint="--against-vllm"
        )
    if against_vllm:
        raise typer.Exit(agreement_with_vllm())
    raise typer.Exit(run(only=only, write=write))


def main() -> None:
    """Run a benchmark."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    app()


def _names(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(","))
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}.", param_hint=option)
    return names


def _number(text: str, option: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_HOURS:
        raise typer.BadParameter(f"{text!r} is not a number above 0, such as 0.5.", param_hint=option)
    return number


def _lengths(text: str, option: str) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(("short", "long", "film")) or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is not three whole numbers, such as 200,20,2.", param_hint=option)
    shorts, longs, films = map(int, parts)
    return shorts, longs, films


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(
            f"{text!r} is not a list of positive whole numbers, such as 30,600.", param_hint=option
        )
    return tuple(map(int, parts))


if __name__ == "__main__":
    main()
