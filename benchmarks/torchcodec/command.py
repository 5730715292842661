"""The benchmark beside TorchCodec, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, Lengths, Rounds, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

_Clips = Annotated[
    Path | None,
    typer.Option(
        "--clips", exists=True, file_okay=False, help="Folder of videos to measure instead of generated ones."
    ),
]


def torchcodec(
    lengths: Lengths = "30,600",
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 5,
    *,
    clips: _Clips = None,
    at_model_size: Annotated[
        bool, typer.Option("--at-model-size", help="Let both scale frames to the model's size.")
    ] = False,
    keyframes: Annotated[
        bool,
        typer.Option("--keyframes", help="Compare our keyframes with TorchCodec's approximate seek to uniform frames."),
    ] = False,
    random: Annotated[
        bool, typer.Option("--random", help="Ask both for random positions (`video[[...]]`) instead of uniform ones.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Time uniform sampling against TorchCodec at its best settings, in an environment that this command creates.

    Exit with 1 where ours is less than 1.5 times as fast, but not with --random, or the frames are not those of the
    same times; not with --keyframes, which compares other frames.
    """
    from benchmarks.media.clips import bench_clips  # noqa: PLC0415
    from benchmarks.torchcodec.measure import Choice  # noqa: PLC0415
    from benchmarks.torchcodec.report import compare, compare_keyframes  # noqa: PLC0415
    from tasks.manifest.videos import VIDEO_SUFFIXES, suffix_of  # noqa: PLC0415

    wanted: Iterable[Path]
    if clips:
        wanted = sorted(path for path in clips.iterdir() if suffix_of(path.name) in VIDEO_SUFFIXES)
    else:
        wanted = (clip.make(folder) for clip in bench_clips(whole_numbers(lengths, "--lengths")))
    if keyframes:
        compare_keyframes(wanted, folder, rounds=rounds, at_model_size=at_model_size, as_json=json)
        return
    if at_model_size and random:
        raise typer.BadParameter("--random compares frames at the source's size; leave --at-model-size out.")
    choice = Choice(at_model_size=at_model_size, at_random=random)
    raise typer.Exit(compare(wanted, folder, rounds=rounds, choice=choice, as_json=json))


BENCHES = (Bench(torchcodec, "torchcodec --lengths 30 --rounds 3"),)
