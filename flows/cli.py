"""The command line.

Exit codes: 0 done, 1 finished with failures, not reconciled or cut off, 2 usage or configuration,
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from flows.cli_bench import bench_app
from flows.commands.example import example
from flows.commands.prompt_options import with_prompts
from flows.commands.sampling_options import with_sampling
from flows.commands.terminal import ERRORS, complain
from infra.errors import JobError, NotReconciledError, ReelabelError, TransientError
from infra.settings import PromptChoice, SamplingChoice, load_settings


class ExplainingGroup(TyperGroup):
    """Turns what a command raises into one sentence and an exit code, never a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - Typer's own types
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ERRORS.print("Stopped. Run the same command again to go on.")
            sys.exit(130)
        except ReelabelError as error:
            complain(error.code, error.message)
            sys.exit(1 if isinstance(error, JobError | TransientError | NotReconciledError) else 2)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # whoever read our output has seen enough: Click ends quietly
            where = f"{error.filename}: " if error.filename else ""
            complain(
                "configuration", f"{where}{error.strerror or error}; check the path, its permissions and the disk."
            )
            sys.exit(2)


app = typer.Typer(
    name="reelabel",
    cls=ExplainingGroup,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
manifest_app = typer.Typer(
    help="Check manifests, and make them from other formats.",
    epilog="Example: reelabel manifest check jobs.parquet",
    no_args_is_help=True,
)
app.add_typer(manifest_app, name="manifest")
cache_app = typer.Typer(help="List the cached frame files, and make room among them.", no_args_is_help=True)
app.add_typer(cache_app, name="cache")
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Run a command."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    app()


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"reelabel {version('reelabel')}")
        raise typer.Exit


@app.callback(epilog="Example: reelabel demo")
def options(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - acted on as it is read
        bool,
        typer.Option(
            "--version",
            callback=lambda wanted: _print_version(wanted=wanted),
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Ask multiple-choice questions about many videos, offline."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Format = Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")]


@app.command()
@example("reelabel demo --keep")
def demo(
    model: Annotated[str | None, typer.Option(help="Your own model: a folder or hub name.")] = None,
    clips: Annotated[int, typer.Option(min=24, max=1000, help="Clips to make; three jobs each.")] = 32,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the services running afterwards.")] = False,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Measure accuracy on 200 fresh clips, beside black and backwards ones."),
    ] = False,
) -> None:
    """Run the main job end to end on clips made here: services, deployment, answers, summary."""
    from flows.commands.demo import run_demo  # noqa: PLC0415

    raise typer.Exit(run_demo(model=model, clips=clips, keep=keep, measure=measure))


@app.command()
@example("reelabel deploy")
def deploy() -> None:
    """Create or update the deployments: classify/nightly, classify/on-demand, backfill/by-ids."""
    from flows.commands.services import deploy_all  # noqa: PLC0415

    deploy_all()


NumFrames = Annotated[
    int | None, typer.Option(min=1, max=512, help="Frames shown to the model per video.", rich_help_panel="Sampling")
]


Permutations = Annotated[
    int | None, typer.Option(min=1, max=26, help="Orders in which each question's choices are shown and averaged.")
]


@app.command()
@example("reelabel classify s3://videos/jobs/*.parquet --dataset animals")
@with_sampling
@with_prompts
def classify(
    manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob; local or s3://.")],
    dataset: Annotated[str | None, typer.Option(help="Where job ids are unique; else the file's name.")] = None,
    num_frames: NumFrames = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name.")] = None,
    permutations: Permutations = None,
    *,
    sampling: SamplingChoice,
    prompts: PromptChoice,
    force: Annotated[bool, typer.Option("--force", help="Ask again even where a valid label stands.")] = False,
) -> None:
    """Answer every job of a manifest that has no valid label yet."""
    from flows.commands.run import run_classify  # noqa: PLC0415 - Prefect takes a second to import

    code = run_classify(
        manifest,
        dataset=dataset,
        num_frames=num_frames,
        sampling=sampling,
        model=model,
        prompts=prompts,
        permutations=permutations,
        force=force,
    )
    raise typer.Exit(code)


@app.command()
@example("reelabel backfill --ids clip-7-colour,clip-9-shape --force")
@with_sampling
@with_prompts
def backfill(  # noqa: PLR0913 - a command's options
    *,
    ids: Annotated[str, typer.Option(help="Job ids, separated by commas.")] = "",
    ids_file: Annotated[str | None, typer.Option(help="File with one job id a line; - is standard input.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Every job that ended as a failure.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also where a valid label stands.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    manifest: Annotated[str | None, typer.Option(help="Else the last run's.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Else the last run's.")] = None,
    num_frames: NumFrames = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name.")] = None,
    permutations: Permutations = None,
    sampling: SamplingChoice,
    prompts: PromptChoice,
) -> None:
    """Ask chosen jobs again: by id, or those that failed."""
    from flows.commands.backfill import Choice, run_backfill  # noqa: PLC0415

    choice = Choice(ids=ids, ids_file=ids_file, failed=failed, force=force)
    code = run_backfill(
        choice,
        dry_run=dry_run,
        manifest=manifest,
        dataset=dataset,
        num_frames=num_frames,
        sampling=sampling,
        model=model,
        prompts=prompts,
        permutations=permutations,
    )
    raise typer.Exit(code)


@app.command()
@example("reelabel results last --format csv > labels.csv")
def results(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, or 'last'.")] = "last",
    form: Format = "table",
    *,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Add calibrated probabilities; see `reelabel calibrate`.")
    ] = False,
) -> None:
    """Print the labels and failures that stand for a run's dataset and spec."""
    from flows.commands.show import print_results  # noqa: PLC0415

    print_results(run, form=form, with_calibrated=calibrated)


@app.command()
@example("reelabel calibrate known.parquet")
def calibrate(
    manifest: Annotated[str, typer.Argument(help="Manifest whose column answer is filled in.")],
    run: Annotated[
        str | None, typer.Option(help="Run whose labels are judged, as its id or 'last'; else the manifest's latest.")
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Fit one temperature to the known answers of labelled jobs, so that probabilities are as sure as right."""
    from flows.commands.calibrate import calibrate_spec  # noqa: PLC0415

    calibrate_spec(manifest, run=run, as_json=json)


@app.command()
@example("reelabel audit last --json")
def audit(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, or 'last'.")] = "last",
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Read a run's manifest again and prove that every job ended exactly once; exit 1 where not."""
    from flows.commands.show import print_audit  # noqa: PLC0415

    raise typer.Exit(print_audit(run, as_json=json))


@app.command()
@example("reelabel frames clip.mp4 --sampler uniform --json")
@with_sampling
def frames(
    video: Annotated[str, typer.Argument(help="Path or URI of a video.")],
    *,
    num_frames: NumFrames = None,
    sampling: SamplingChoice,
    every: Annotated[bool, typer.Option("--all", help="Take every keyframe.")] = False,
    native: Annotated[bool, typer.Option("--native", help="Unscaled and unrotated.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what the model would see as JSON.")] = False,
    npz: Annotated[str | None, typer.Option(help="Save the frames to this file.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Draw a contact sheet to this PNG file.")] = None,
) -> None:
    """Show which frames of a video the model would see."""
    from flows.commands.frames import View, show_frames  # noqa: PLC0415

    view = View(every=every, native=native, as_json=json, npz=npz, sheet=sheet)
    show_frames(video, view, num_frames=num_frames, sampling=sampling)


@app.command()
@example("reelabel prompt clip-7-colour --manifest jobs.parquet")
@with_sampling
@with_prompts
def prompt(
    job_id: Annotated[str, typer.Argument(help="A job of the manifest.")],
    *,
    manifest: Annotated[str | None, typer.Option(help="Else the last run's.")] = None,
    num_frames: NumFrames = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name.")] = None,
    permutations: Permutations = None,
    sampling: SamplingChoice,
    prompts: PromptChoice,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON, nothing abridged.")] = False,
) -> None:
    """Print exactly what the model is sent for a job, with its tokens; loads no weights."""
    from flows.commands.prompt import Asking, show_prompt  # noqa: PLC0415

    asking = Asking(num_frames=num_frames, sampling=sampling, prompts=prompts, model=model, permutations=permutations)
    raise typer.Exit(show_prompt(job_id, asking, manifest=manifest, as_json=json))


@app.command()
@example("reelabel up")
def up() -> None:
    """Start the embedded Postgres, S3 server, Prefect server and worker, and leave them running."""
    from flows.commands.services import start_services  # noqa: PLC0415

    start_services()


@app.command()
@example("reelabel down")
def down(
    *,
    force: Annotated[bool, typer.Option("--force", help="Even while another command is using them.")] = False,
) -> None:
    """Stop the embedded services; their data stay."""
    from flows.commands.services import stop_services  # noqa: PLC0415

    stop_services(load_settings(), force=force)


@app.command()
@example("reelabel status")
def status() -> None:
    """Show the embedded services."""
    from flows.commands.services import print_status  # noqa: PLC0415

    print_status(load_settings())


@app.command()
@example("reelabel doctor")
def doctor() -> None:
    """Check every part in place, and say what to do; exit 2 where one is missing."""
    from flows.commands.services import print_checks  # noqa: PLC0415

    raise typer.Exit(print_checks(load_settings()))


@app.command()
@example("reelabel config")
def config() -> None:
    """Print the effective settings, secrets masked."""
    from flows.commands.services import print_settings  # noqa: PLC0415

    print_settings(load_settings())


@cache_app.command("ls")
@example("reelabel cache ls")
def cache_list(
    *,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object per file.")] = False,
) -> None:
    """Print one line per cached file, then their number and bytes."""
    from flows.commands.cache import list_cache  # noqa: PLC0415

    list_cache(as_json=json)


@cache_app.command("gc")
@example("reelabel cache gc --older-than 30d --max-bytes 100G --dry-run")
def cache_collect(
    *,
    older_than: Annotated[str | None, typer.Option(help="Remove files written longer ago, such as 12h or 30d.")] = None,
    max_bytes: Annotated[str | None, typer.Option(help="Then the oldest, until so much stays, such as 100G.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, and say what would go.")] = False,
) -> None:
    """Make room in the cache: files that went are made anew when they are needed."""
    from flows.commands.cache import collect_cache  # noqa: PLC0415

    collect_cache(older_than=older_than, max_bytes=max_bytes, dry_run=dry_run)


@manifest_app.command("check")
@example("reelabel manifest check jobs.parquet")
def manifest_check(manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob.")]) -> None:
    """Check a manifest, and write nothing."""
    from flows.commands.manifest import check  # noqa: PLC0415

    check(manifest)


@manifest_app.command("import")
@example("reelabel manifest import jobs.csv jobs.parquet")
def manifest_import(
    source: Annotated[str, typer.Argument(help="CSV file, or OpenAI-batch JSONL.")],
    target: Annotated[str, typer.Argument(help="Parquet file to write.")],
) -> None:
    """Make a manifest from CSV or from OpenAI-batch JSONL, and check it."""
    from flows.commands.manifest import import_manifest  # noqa: PLC0415

    import_manifest(source, target)


if __name__ == "__main__":
    main()
