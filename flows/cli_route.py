"""`reelabel route`: its commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.example import example
from flows.commands.sampling_options import NumFrames, with_sampling
from infra.sampling_settings import SamplingOptions  # noqa: TC001 - defines a command's options

route_app = typer.Typer(
    help="Choose which jobs to escalate to a dense sampler.",
    epilog="Example: reelabel route fit known.parquet --sampler auto",
    no_args_is_help=True,
)


@route_app.command("fit")
@example("reelabel route fit known.parquet --sampler auto --max-loss 1")
@with_sampling
def route_fit(
    manifest: Annotated[
        str, typer.Argument(help="Parquet file of jobs, or a glob; its column answer must be filled in.")
    ],
    *,
    max_loss: Annotated[
        float,
        typer.Option(min=0, max=100, help="Accuracy, in percentage points, that may be lost to the dense sampler."),
    ] = 1.0,
    target_accuracy: Annotated[
        float | None, typer.Option(min=0, max=1, help="Accuracy to reach, 0 to 1, instead of --max-loss.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Name within which job ids are unique. Default: the manifest's file name.")
    ] = None,
    num_frames: NumFrames = None,
    model: Annotated[str | None, typer.Option(help="Model folder or Hugging Face name. Default: model.name.")] = None,
    sampling: SamplingOptions,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit the margin below which jobs are escalated to the dense sampler, for `--escalate-below fitted`.

    Also find the tasks for which keyframes are always enough. Jobs without an answer yet are answered first.
    """
    from flows.commands.route import fit_margin  # noqa: PLC0415
    from tasks.routing.fit import Target  # noqa: PLC0415

    target = Target(within=max_loss / 100, accuracy=target_accuracy)
    asking = {"num_frames": num_frames, "model": model}
    fit_margin(manifest, target, sampling=sampling, dataset=dataset, asking=asking, as_json=json)
