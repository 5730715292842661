"""The command groups `cache`, `database`, `manifest`, `route` and `worker`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import example, with_overrides, with_sampling
from flows.run.parameters import SpecOverrides  # noqa: TC001 - defines a command's options
from infra.settings import SamplingOptions  # noqa: TC001 - defines a command's options

cache_app = typer.Typer(help="List cached frame files, and evict old ones.", no_args_is_help=True)


@cache_app.command("ls")
@example("reelabel cache ls")
def cache_list(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per file.")] = False,
) -> None:
    """List cached files, one per line, with a total at the end."""
    from flows.cli.cache import list_cache  # noqa: PLC0415

    list_cache(as_json=json)


@cache_app.command("gc")
@example("reelabel cache gc --older-than 30d --max-bytes 100G --dry-run")
def cache_collect(
    *,
    older_than: Annotated[str | None, typer.Option(help="Remove files older than this, such as 12h or 30d.")] = None,
    max_bytes: Annotated[
        str | None, typer.Option(help="Then remove the oldest files until at most this much is left, such as 100G.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False,
) -> None:
    """Remove cached files by age or total size; they are created again when needed."""
    from flows.cli.cache import collect_cache  # noqa: PLC0415

    collect_cache(older_than=older_than, max_bytes=max_bytes, dry_run=dry_run)


database_app = typer.Typer(
    help="Create the database's roles, upgrade its schema, back it up and restore it.", no_args_is_help=True
)


@database_app.command("roles")
@example("reelabel database roles")
def database_roles() -> None:
    """Create the owner, writer and reader roles, using database.owner_url; safe to repeat."""
    from flows.cli.set_up.database import make_roles  # noqa: PLC0415

    make_roles()


@database_app.command("upgrade")
@example("reelabel database upgrade")
def database_upgrade() -> None:
    """Upgrade the database to this version's schema, using database.owner_url."""
    from flows.cli.set_up.database import upgrade_database  # noqa: PLC0415

    upgrade_database()


@database_app.command("backup")
@example("reelabel database backup reelabel.zip")
def database_backup(file: Annotated[str, typer.Argument(help="File to write; an existing one is replaced.")]) -> None:
    """Back up every row, using database.owner_url; runs may go on meanwhile."""
    from flows.cli.set_up.database import back_up  # noqa: PLC0415

    back_up(file)


@database_app.command("restore")
@example("reelabel database restore reelabel.zip")
def database_restore(file: Annotated[str, typer.Argument(help="File that `reelabel database backup` wrote.")]) -> None:
    """Restore a backup into a new database, using database.owner_url; one that has rows is refused."""
    from flows.cli.set_up.database import restore  # noqa: PLC0415

    restore(file)


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
            help="nextqa, mvbench, videomme, or csv for choices in several columns; "
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
    overrides: SpecOverrides,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit the margin below which jobs are escalated to the dense sampler, for `--escalate-below fitted`.

    It is stored if known answers prove that it loses no more than asked; exit 1 if none does. Jobs without an answer
    yet are answered first.
    """
    from flows.cli.evaluation.route import fit_margin  # noqa: PLC0415

    raise typer.Exit(fit_margin(manifest, max_loss / 100, overrides=overrides, dataset=dataset, as_json=json))


worker_app = typer.Typer(
    help="Extract or infer for runs with run.executor = remote.",
    epilog="Example: reelabel worker infer",
    no_args_is_help=True,
)
Plan = Annotated[str | None, typer.Option(help="Id of the plan to work on. Default: every open plan.")]
IdleTimeout = Annotated[
    float | None,
    typer.Option(
        "--idle-timeout", min=0, help="Exit after this many seconds without a shard. Default: run.idle_timeout_s."
    ),
]


@worker_app.command("extract")
@example("reelabel worker extract")
def worker_extract(plan: Plan = None, idle_timeout_s: IdleTimeout = None) -> None:
    """Extract planned shards until none is left or the idle timeout passes."""
    from flows.cli.worker import run_stage  # noqa: PLC0415

    run_stage("extract", plan=plan, idle_timeout_s=idle_timeout_s)


@worker_app.command("infer")
@example("reelabel worker infer --model Qwen/Qwen2.5-VL-7B-Instruct")
def worker_infer(
    plan: Plan = None,
    model: Annotated[str | None, typer.Option(help="Model folder or Hugging Face name. Default: model.name.")] = None,
    idle_timeout_s: IdleTimeout = None,
) -> None:
    """Load the model once, and answer extracted shards until none is left or the idle timeout passes."""
    from flows.cli.worker import run_stage  # noqa: PLC0415

    run_stage("infer", plan=plan, model=model, idle_timeout_s=idle_timeout_s)


app = typer.Typer()
for _name, _group in {
    "cache": cache_app,
    "database": database_app,
    "manifest": manifest_app,
    "route": route_app,
    "worker": worker_app,
}.items():
    app.add_typer(_group, name=_name)
