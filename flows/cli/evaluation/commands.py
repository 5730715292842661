"""The commands that measure answers on known ones."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import Dataset, example

app = typer.Typer()
LabelledManifest = Annotated[
    str, typer.Argument(help="Parquet file of jobs, or a glob; its column answer must be filled in.")
]


@app.command()
@example("reelabel evaluate known.parquet --sampler keyframes --sampler keyframes:32")
def evaluate(
    manifest: LabelledManifest,
    *,
    sampler: Annotated[
        list[str] | None,
        typer.Option(help="SAMPLER[:FRAMES][,OPTION=VALUE...]; repeatable. Default: keyframes."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model folder or Hugging Face name; repeatable. Default: model.name.")
    ] = None,
    dataset: Dataset = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Sampler to compare with. Default: native, the sampler the model was trained with."),
    ] = None,
    references: Annotated[
        bool, typer.Option("--references/--no-references", help="Also compare the samplers native and uniform:16.")
    ] = True,
    live: Annotated[
        str | None,
        typer.Option(help="Address of `reelabel serve`: also compare the answers of its live sessions."),
    ] = None,
    json: Annotated[str | None, typer.Option(help="Write the evaluation as JSON to this file; - prints it.")] = None,
) -> None:
    """Compare samplers, frame counts and models on a manifest with known answers."""
    from flows.cli.evaluation.evaluate import run_evaluate  # noqa: PLC0415

    asked = {"samplers": sampler or ["keyframes"], "models": model or [], "dataset": dataset, "baseline": baseline}
    raise typer.Exit(run_evaluate(manifest, **asked, references=references, live=live, json_to=json))


@app.command()
@example("reelabel calibrate known.parquet")
def calibrate(
    manifest: LabelledManifest,
    run: Annotated[
        str | None,
        typer.Option(help="Run whose labels to use: an id, or 'last'. Default: the manifest's, if all had one spec."),
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit a temperature on known answers so that confidence matches accuracy."""
    from flows.cli.evaluation.evaluate import calibrate_spec  # noqa: PLC0415

    calibrate_spec(manifest, run=run, as_json=json)
