"""The comparison with other tools, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, Plot, Rounds, known_names


def peers(  # noqa: PLR0913 - a command's options
    peers: Annotated[
        str, typer.Option(help="What to compare with, comma-separated; each is installed in an environment of its own.")
    ] = "plain,url,daft,pixeltable,ray_data,datachain,nemo_curator",
    folder: ClipFolder = FOLDER,
    clips: Annotated[
        str, typer.Option(help="How many clips of 32 s, of 600 s and of an hour; 0 leaves a length out.")
    ] = "200,20,2",
    rounds: Rounds = 3,
    limit: Annotated[float, typer.Option(min=1, max=3600, help="Seconds after which a run is ended.")] = 600,
    *,
    brief: Annotated[bool, typer.Option("--brief", help="8 clips of 32 s, 2 of 600 s and one of an hour.")] = False,
    dirty: Annotated[
        int | None,
        typer.Option(min=8, max=10_000, help="Instead, ask for frames of this many clips, some of them unreadable."),
    ] = None,
    questions: Annotated[
        int | None,
        typer.Option(min=8, max=100_000, help="Instead, ask this many questions, eight about each clip, and again."),
    ] = None,
    descriptions: Annotated[
        int | None,
        typer.Option(
            min=8, max=10_000, help="Instead, describe this many clips, again by another bank, and search them."
        ),
    ] = None,
    model: Annotated[str, typer.Option(help="Who answers questions: tiny, 100m, or both, comma-separated.")] = "tiny",
    kill: Annotated[
        bool,
        typer.Option("--kill", help="Instead of asking again, kill each at half of the answers, and let it continue."),
    ] = False,
    json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Compare with other tools on the same videos of one S3 server: time, bytes, memory and lost rows.

    Exit with 1 where a target is missed.
    """
    from benchmarks.peers.cases import QUESTIONS_PER_VIDEO  # noqa: PLC0415
    from benchmarks.peers.peer import PEERS  # noqa: PLC0415
    from benchmarks.peers.report import print_report  # noqa: PLC0415
    from benchmarks.peers.runner import Comparison  # noqa: PLC0415

    names = known_names(peers, [peer.script for peer in PEERS], "--peers")
    comparison = Comparison(names=names, folder=folder, rounds=rounds, limit_s=limit)
    if dirty:
        outcomes = comparison.dirty_frames(dirty)
    elif questions:
        models = known_names(model, ("tiny", "100m"), "--model")
        outcomes = comparison.questions(models, questions // QUESTIONS_PER_VIDEO, dying=kill)
    elif descriptions:
        outcomes = comparison.descriptions(descriptions)
    else:
        outcomes = comparison.frames(_lengths("8,2,1" if brief else clips))
    raise typer.Exit(print_report(outcomes, rounds=rounds, as_json=json, plot=plot))


def _lengths(text: str) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(("short", "long", "film")) or not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"{text!r} is not three whole numbers, such as 200,20,2.", param_hint="--clips")
    shorts, longs, films = map(int, parts)
    return shorts, longs, films


BENCHES = (Bench(peers, "peers --brief --peers daft --plot peers.svg"),)
