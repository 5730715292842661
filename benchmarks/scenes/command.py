"""The benchmark of scenes, and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.bench import FOLDER, AsJson, Bench, ClipFolder, Rounds, known_names

GROUPS = ("real", "cuts", "motion", "gradual", "set")


def scenes(
    folder: ClipFolder = FOLDER,
    rounds: Rounds = 1,
    *,
    methods: Annotated[
        str, typer.Option(help="What to compare, comma-separated; PySceneDetect is in any case.")
    ] = "auto,ema,published",
    clips: Annotated[str, typer.Option(help="Kinds of clips, comma-separated; set are forty made ones.")] = ",".join(
        GROUPS
    ),
    sizes: Annotated[str, typer.Option(help="Sizes of the made clips: small, large or both.")] = "small,large",
    json: AsJson = False,
) -> None:
    """Compare methods that find scene changes, on generated clips and on real ones, which this command downloads.

    Exit with 1 where a target is missed.
    """
    from benchmarks.scenes.contenders import LIBRARIES, OURS  # noqa: PLC0415
    from benchmarks.scenes.report import run  # noqa: PLC0415

    wanted = known_names(methods, OURS, "--methods")
    kept = known_names(sizes, ("small", "large"), "--sizes")
    groups = known_names(clips, GROUPS, "--clips")
    raise typer.Exit(run(folder, (*wanted, *LIBRARIES), rounds=rounds, groups=groups, sizes=kept, as_json=json))


BENCHES = (Bench(scenes, "scenes --methods auto,ema --sizes small"),)
