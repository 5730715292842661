"""The command groups `manifest` and `route`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import example, with_overrides, with_sampling
from flows.run.request import QuestionOptions  # noqa: TC001 - defines a command's options
from infra.settings import SamplingOptions  # noqa: TC001 - defines a command's options

manifest_app = typer.Typer(
    help="Check manifests, look at their videos, and convert other formats to manifests.",
    epilog="Example: reelabel manifest check jobs.parquet",
    no_args_is_help=True,
)


@manifest_app.command("check")
@example("reelabel manifest check jobs.parquet")
def manifest_check(manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob.")]) -> None:
    """Validate a manifest, and report every error."""
    from flows.cli.manifest import check  # noqa: PLC0415

    check(manifest)


@manifest_app.command("survey")
@example("reelabel manifest survey jobs.parquet --sample 2000 --page survey.html")
@with_sampling
def manifest_survey(
    manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob; a local path or s3://.")],
    *,
    sample: Annotated[
        int | None, typer.Option(min=2, help="Look at this many clips, drawn at random. Default: all.")
    ] = None,
    limit_s: Annotated[
        float | None, typer.Option(min=0, help="Look at no further video after this many seconds. Default: no limit.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    page: Annotated[str | None, typer.Option(help="Also write a page with histograms to this .html file.")] = None,
    keep_going: Annotated[bool, typer.Option("--keep-going", help="Leave out invalid rows.")] = False,
    sampling: SamplingOptions,
) -> None:
    """Survey a manifest's videos by their indexes: what they are, what keyframes show, and what a run will cost."""
    from flows.cli.survey import survey_manifest  # noqa: PLC0415
    from tasks.survey.take import SurveyOptions  # noqa: PLC0415

    options = SurveyOptions(sample=sample, limit_s=limit_s, keep_going=keep_going)
    survey_manifest(manifest, options, sampling=sampling, form=form, page=page)


@manifest_app.command("import")
@example("reelabel manifest import jobs.csv jobs.parquet")
def manifest_import(  # noqa: PLR0913 - each is an option
    source: Annotated[
        str,
        typer.Argument(help="CSV file, OpenAI batch JSONL file, a benchmark's file or folder, or where videos are."),
    ],
    target: Annotated[str, typer.Argument(help="Parquet file to write.")],
    *,
    layout: Annotated[
        str | None,
        typer.Option(
            help="nextqa, mvbench, videomme, streamingbench, or csv for choices in several columns; "
            "webdataset, parquet, lerobot or folder for videos."
        ),
    ] = None,
    videos: Annotated[
        str | None,
        typer.Option(help="With --layout: folder or s3:// prefix of the videos. Default: the source's folder."),
    ] = None,
    video_map: Annotated[
        str | None, typer.Option(help="With --layout: JSON file that maps video names to paths.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="For CSV and for fields of videos: NAME=COLUMN, such as prompt=question, or with --layout csv "
            "choices=a+b+c; repeatable."
        ),
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="For videos: the question about each.")] = None,
    choices: Annotated[
        str | None, typer.Option(help="For videos: its choices, separated by bars, such as 'yes|no'.")
    ] = None,
    keep_going: Annotated[
        bool,
        typer.Option(
            "--keep-going", help="Write the valid rows, list the others in rejected.csv beside the target, and exit 1."
        ),
    ] = False,
) -> None:
    """Convert CSV, OpenAI batch JSONL, a benchmark's files or videos to a manifest, and validate it."""
    from flows.cli.manifest import ImportOptions, import_manifest  # noqa: PLC0415

    options = ImportOptions(
        layout=layout, videos=videos, video_map=video_map, columns=column or [], prompt=prompt, choices=choices
    )
    raise typer.Exit(import_manifest(source, target, options, keep_going=keep_going))


route_app = typer.Typer(
    help="Choose which jobs to escalate to a dense sampler.",
    epilog="Example: reelabel route fit known.parquet --sampler auto",
    no_args_is_help=True,
)


@route_app.command("fit")
@example("reelabel route fit known.parquet --sampler auto --max-loss 1")
@with_overrides
def route_fit(
    manifest: Annotated[
        str, typer.Argument(help="Parquet file of jobs, or a glob; its column answer must be filled in.")
    ],
    *,
    max_loss: Annotated[
        float,
        typer.Option(min=0, max=100, help="Accuracy, in percentage points, that may be lost to the dense sampler."),
    ] = 1.0,
    dataset: Annotated[
        str | None, typer.Option(help="Name within which job ids are unique. Default: the manifest's file name.")
    ] = None,
    overrides: QuestionOptions,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit the margin below which jobs are escalated to the dense sampler, for `--escalate-below fitted`.

    It is stored if known answers prove that it loses no more than asked; exit 1 if none does. Jobs without an answer
    yet are answered first.
    """
    from flows.cli.evaluation.route import fit_margin  # noqa: PLC0415

    raise typer.Exit(fit_margin(manifest, max_loss / 100, overrides=overrides, dataset=dataset, as_json=json))


app = typer.Typer()
app.add_typer(manifest_app, name="manifest")
app.add_typer(route_app, name="route")
