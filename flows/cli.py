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

from flows.cli_cache import cache_app
from flows.cli_database import database_app
from flows.cli_manifest import manifest_app
from flows.cli_route import route_app
from flows.cli_work import work_app
from flows.commands.example import example
from flows.commands.prompt_options import with_prompts
from flows.commands.sampling_options import NumFrames, with_sampling
from flows.commands.selection_options import with_selection
from flows.commands.terminal import ERRORS, complain
from infra.errors import JobError, NotReconciledError, ReelabelError, RunFailedError, TransientError
from infra.sampling_settings import SamplingChoice  # noqa: TC001 - a command's options are read from it
from infra.settings import PromptChoice, load_settings
from tasks.results.selection import Selection  # noqa: TC001 - a command's options are read from it


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
            sys.exit(1 if isinstance(error, JobError | TransientError | NotReconciledError | RunFailedError) else 2)
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
_GROUPS = {
    "manifest": manifest_app,
    "cache": cache_app,
    "route": route_app,
    "database": database_app,
    "work": work_app,
}
for name, group in _GROUPS.items():
    app.add_typer(group, name=name)


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


_WHICH = "Which jobs"
Format = Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")]


@app.command()
@example("reelabel demo --keep")
def demo(
    model: Annotated[str | None, typer.Option(help="Your own model: a folder or hub name.")] = None,
    clips: Annotated[int, typer.Option(min=24, max=1000, help="Clips to make; three jobs each.")] = 32,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the services running afterwards.")] = False,
) -> None:
    """Run the main job end to end on clips made here: services, deployment, answers, summary."""
    from flows.commands.demo import run_demo  # noqa: PLC0415

    raise typer.Exit(run_demo(model=model, clips=clips, keep=keep))


@app.command()
@example("reelabel deploy --manifest 's3://bucket/jobs/dt={scheduled_date}/*.parquet' --timezone Europe/Berlin")
def deploy(
    *,
    manifest: Annotated[
        str | None, typer.Option(help="Of classify/nightly; else the setting nightly.manifest.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Else nightly.dataset.")] = None,
    cron: Annotated[str | None, typer.Option(help="When classify/nightly runs; else nightly.cron.")] = None,
    timezone: Annotated[str | None, typer.Option(help="Of the schedule; else nightly.timezone.")] = None,
    when_running: Annotated[
        str | None, typer.Option(help="queue or skip a night while one runs; else nightly.when_running.")
    ] = None,
) -> None:
    """Create or update the deployments: scheduled, on arrival of a manifest, on demand, and by job id."""
    from flows.commands.deploy import deploy_all  # noqa: PLC0415

    asked = {"manifest": manifest, "dataset": dataset, "cron": cron, "timezone": timezone, "when_running": when_running}
    deploy_all({name: value for name, value in asked.items() if value is not None})


@app.command()
@example("reelabel maintain --dry-run")
def maintain(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, and say what would go.")] = False,
) -> None:
    """Remove what is older than the settings keep.* allow, as maintain/daily does; close the rows of lost runs."""
    from flows.commands.maintain import maintain as run  # noqa: PLC0415

    run(dry_run=dry_run)


@app.command("catch-up")
@example("reelabel catch-up --since 2026-11-01 --dry-run")
def catch_up(
    *,
    since: Annotated[str, typer.Option(help="First day, in the schedule's time zone, such as 2026-11-01.")],
    until: Annotated[str | None, typer.Option(help="Last day; else up to now.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the nights, and start none.")] = False,
) -> None:
    """Start what classify/nightly missed, one night after the other; exit 1 where one fails."""
    from flows.commands.catch_up import catch_up as run  # noqa: PLC0415

    raise typer.Exit(run(since=since, until=until, dry_run=dry_run))


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
@example("reelabel backfill --failed --code video_missing --dry-run")
@with_selection
@with_sampling
@with_prompts
def backfill(  # noqa: PLR0913 - a command's options
    *,
    ids: Annotated[str, typer.Option(help="Job ids, separated by commas.", rich_help_panel=_WHICH)] = "",
    ids_file: Annotated[
        str | None, typer.Option(help="File with one job id a line; - is standard input.", rich_help_panel=_WHICH)
    ] = None,
    selection: Selection,
    force: Annotated[bool, typer.Option("--force", help="Also where a valid label stands.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    via: Annotated[str, typer.Option(help="local: run here. deployment: let a worker run it.")] = "local",
    wait: Annotated[bool, typer.Option("--wait", help="Watch a deployment's run until it has ended.")] = False,
    manifest: Annotated[str | None, typer.Option(help="Else that of --run, or the last run's.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Else that of the manifest's last run.")] = None,
    num_frames: NumFrames = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name; else as before.")] = None,
    permutations: Permutations = None,
    sampling: SamplingChoice,
    prompts: PromptChoice,
) -> None:
    """Ask chosen jobs again: by id, or by how they ended; as before, unless an option says otherwise."""
    from flows.commands.backfill import Wish, run_backfill  # noqa: PLC0415

    asking = {
        "num_frames": num_frames,
        "sampling": sampling.model_dump(exclude_none=True),
        "prompts": prompts.model_dump(exclude_none=True),
        "model": model,
        "permutations": permutations,
    }
    wish = Wish(
        selection=selection,
        ids=ids,
        ids_file=ids_file,
        manifest=manifest,
        dataset=dataset or None,
        asking=asking,
        force=force,
        via=via,
        wait=wait,
    )
    raise typer.Exit(run_backfill(wish, dry_run=dry_run))


@app.command()
@example("reelabel evaluate known.parquet --sampler keyframes --sampler keyframes:32")
def evaluate(
    manifest: Annotated[str, typer.Argument(help="Parquet file of jobs whose column answer is filled in, or a glob.")],
    *,
    sampler: Annotated[
        list[str] | None,
        typer.Option(help="SAMPLER[:FRAMES][,OPTION=VALUE...]; may be given several times; else keyframes."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model folder or hub name; may be given several times.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Where job ids are unique; else the file's name.")] = None,
    baseline: Annotated[str | None, typer.Option(help="Compare with this sampler; else with the faithful one.")] = None,
    only: Annotated[
        bool, typer.Option("--only", help="Leave out the faithful sampler and uniform:16, which else stand beside.")
    ] = False,
    json: Annotated[str | None, typer.Option(help="Write the evaluation as JSON to this file; - prints it.")] = None,
) -> None:
    """Compare samplers, numbers of frames and models on a manifest whose answers are known."""
    from flows.commands.evaluate import run_evaluate  # noqa: PLC0415

    asked = {"samplers": sampler or ["keyframes"], "models": model or [], "dataset": dataset, "baseline": baseline}
    raise typer.Exit(run_evaluate(manifest, **asked, only=only, json_to=json))


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
@example("reelabel report last --out run.html")
def report(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, or 'last'.")] = "last",
    out: Annotated[str | None, typer.Option(help="File to write; else reelabel-RUN.html in this folder.")] = None,
    job: Annotated[list[str] | None, typer.Option(help="A job to show, whatever else is; may be repeated.")] = None,
) -> None:
    """Write a run on one page: figures, failures, changes, and any job's frames; needs no network to be read."""
    from flows.commands.report import write_report  # noqa: PLC0415

    write_report(run, out=out, job_ids=job or [])


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
    listing: Annotated[
        str | None, typer.Option("--list", help="File for the ids without a label: .parquet, .csv or .txt (ids alone).")
    ] = None,
) -> None:
    """Read a run's manifest again and prove that every job ended exactly once; exit 1 where not."""
    from flows.commands.show import print_audit  # noqa: PLC0415

    raise typer.Exit(print_audit(run, as_json=json, listing=listing))


@app.command()
@example("reelabel frames clip.mp4 --sampler uniform --json")
@with_sampling
def frames(  # noqa: PLR0913 - a command's options
    video: Annotated[str, typer.Argument(help="Path or URI of a video.")],
    *,
    num_frames: NumFrames = None,
    start_s: Annotated[float, typer.Option(min=0, help="Where the part begins that is shown, in seconds.")] = 0.0,
    end_s: Annotated[float | None, typer.Option(help="Where it ends; else the video's end.")] = None,
    sampling: SamplingChoice,
    every: Annotated[bool, typer.Option("--all", help="Take every keyframe.")] = False,
    native: Annotated[bool, typer.Option("--native", help="Unscaled and unrotated.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what the model would see as JSON.")] = False,
    npz: Annotated[str | None, typer.Option(help="Save the frames to this file.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Draw a contact sheet to this PNG file.")] = None,
) -> None:
    """Show which frames of a video, or of a part of it, the model would see."""
    from flows.commands.frames import View, show_frames  # noqa: PLC0415
    from tasks.domain import Segment  # noqa: PLC0415

    view = View(every=every, native=native, as_json=json, npz=npz, sheet=sheet)
    show_frames(video, view, segment=Segment.of(start_s, end_s), num_frames=num_frames, sampling=sampling)


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
@example("reelabel prepare")
def prepare() -> None:
    """Bring the database to this version's schema, and make the store's bucket if it is not there."""
    from flows.commands.services import prepare_places  # noqa: PLC0415

    prepare_places()


@app.command()
@example("reelabel status --watch")
def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
) -> None:
    """Show services, runs with their rates and remaining time, shards by state, and what waits for what."""
    from flows.commands.status import show_status  # noqa: PLC0415

    show_status(load_settings(), watch=watch)


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


if __name__ == "__main__":
    main()
