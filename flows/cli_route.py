"""The command line's `route`: which jobs are asked again losslessly."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example
from flows.commands.sampling_options import NumFrames, with_sampling
from infra.sampling_settings import SamplingChoice  # noqa: TC001 - a command's options are read from it

route_app = typer.Typer(
    help="Choose which jobs are asked again losslessly.",
    epilog="Example: reelabel route fit known.parquet --sampler auto",
    no_args_is_help=True,
)


@route_app.command("fit")
@example("reelabel route fit known.parquet --sampler auto --within 1")
@with_sampling
def route_fit(
    manifest: Annotated[str, typer.Argument(help="Manifest whose column answer is filled in.")],
    *,
    within: Annotated[
        float, typer.Option(min=0, max=100, help="Points of accuracy that may be lost against lossless answers.")
    ] = 1.0,
    target_accuracy: Annotated[
        float | None, typer.Option(min=0, max=1, help="Accuracy to reach instead of that.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Where job ids are unique; else the file's name.")] = None,
    num_frames: NumFrames = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name.")] = None,
    sampling: SamplingChoice,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit below which margin jobs answered from keyframes are asked again, and find tasks that any frame answers."""
    from flows.commands.route import fit_margin  # noqa: PLC0415
    from tasks.routing.fit import Target  # noqa: PLC0415

    target = Target(within=within / 100, accuracy=target_accuracy)
    asking = {"num_frames": num_frames, "model": model}
    fit_margin(manifest, target, sampling=sampling, dataset=dataset, asking=asking, as_json=json)
