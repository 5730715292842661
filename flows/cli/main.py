"""The command line.

Exit codes: 0 done; 1 failed, or finished with failures, rejected rows or not reconciled; 2 usage or configuration; 130
stopped by Ctrl-C, within ten seconds, or at once by a second one; 143 by SIGTERM.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import Annotated

import typer

from flows.cli.command_group import PANELS, ReelabelGroup, watch_interrupts
from flows.cli.evaluation.commands import evaluation_app
from flows.cli.groups import cache_app, database_app, manifest_app, route_app, worker_app
from flows.cli.options import (
    Dataset,
    example,
    with_describing,
    with_overrides,
    with_sampling,
    with_selection,
)
from flows.cli.set_up.commands import set_up_app
from flows.run.parameters import SpecOverrides  # noqa: TC001 - defines a command's options
from infra.settings import load_settings
from infra.settings.describe import DescribeOptions  # noqa: TC001 - defines a command's options
from infra.settings.sampling import SamplingOptions  # noqa: TC001 - defines a command's options
from reelabel.errors import ConfigurationError
from tasks.results.selection import Selection  # noqa: TC001 - defines a command's options

_RUN, _INSPECT, _EVALUATE, _OPERATE, _SET_UP = PANELS
app = typer.Typer(
    name="reelabel",
    cls=ReelabelGroup,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(worker_app, name="worker", rich_help_panel=_RUN)
app.add_typer(route_app, name="route", rich_help_panel=_EVALUATE)
app.add_typer(cache_app, name="cache", rich_help_panel=_OPERATE)
app.add_typer(database_app, name="database", rich_help_panel=_OPERATE)
app.add_typer(manifest_app, name="manifest", rich_help_panel=_SET_UP)


def main() -> None:
    """Run a command."""
    watch_interrupts()
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # else Prefect reports on its use from a terminal
    app()


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"reelabel {version('reelabel')}")
        raise typer.Exit


@app.callback(epilog="Example: reelabel demo")
def options(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool,
        typer.Option(
            "--version",
            callback=lambda wanted: _print_version(wanted=wanted),
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Answer multiple-choice questions about millions of videos; describe, search and watch them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_SELECTION = "Job selection"
Manifest = Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob; a local path or s3://.")]
Run = Annotated[str, typer.Argument(help="Run id, a prefix of it, or 'last'.")]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="Write text to CSV unchanged, even where a spreadsheet would run it as a formula."),
]


@app.command(rich_help_panel=_RUN)
@example("reelabel classify 's3://videos/jobs/*.parquet' --dataset animals")
@with_overrides
def classify(
    manifest: Manifest = "",
    dataset: Dataset = None,
    *,
    session: Annotated[
        str | None,
        typer.Option(
            help="Instead of a manifest, ask a live session's questions again, each about the frames that it "
            "saw: its id, a prefix of it, or 'last'."
        ),
    ] = None,
    overrides: SpecOverrides,
    force: Annotated[bool, typer.Option("--force", help="Also answer jobs that have a valid label.")] = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Answer the valid rows, list the others in ./rejected.csv, and exit 1."),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Answer nothing; look at a sample of the videos for up to half a minute, and report what keyframes "
            "show of them and what the run costs; exit as the run would, as far as that shows.",
        ),
    ] = False,
) -> None:
    """Answer every job of a manifest that has no valid label yet."""
    if session is not None:
        from flows.cli.rows.sessions import classify_session  # noqa: PLC0415

        if manifest or dry_run or keep_going:
            raise ConfigurationError("--session takes no manifest, no --dry-run and no --keep-going.")
        raise typer.Exit(classify_session(session, overrides=overrides, dataset=dataset, force=force))
    if dry_run:
        from flows.cli.dry_run import forecast_classify  # noqa: PLC0415

        raise typer.Exit(
            forecast_classify(manifest, overrides=overrides, dataset=dataset, force=force, keep_going=keep_going)
        )
    from flows.cli.run import run_classify  # noqa: PLC0415 - Prefect takes a second to import

    parameters = {"dataset": dataset, "force": force, "keep_going": keep_going}
    raise typer.Exit(run_classify(manifest, overrides=overrides, **parameters))


@app.command(rich_help_panel=_RUN)
@example("reelabel describe 's3://videos/jobs/*.parquet' --tags products.txt --dataset animals")
@with_describing
def describe(
    manifest: Annotated[
        str, typer.Argument(help="Parquet file of jobs, or a glob; only job_id and video_uri are needed.")
    ],
    dataset: Dataset = None,
    *,
    options: DescribeOptions,
    force: Annotated[bool, typer.Option("--force", help="Also describe videos that have a valid description.")] = False,
    keep_going: Annotated[
        bool,
        typer.Option("--keep-going", help="Describe the valid rows, list the others in ./rejected.csv, and exit 1."),
    ] = False,
) -> None:
    """Describe every video of a manifest that has no valid description yet: tags, caption, scenes.

    With other banks or another method, embeddings of earlier runs are used again; nothing is decoded for them.
    """
    from flows.cli.run import run_describe  # noqa: PLC0415 - Prefect takes a second to import

    raise typer.Exit(run_describe(manifest, options=options, dataset=dataset, force=force, keep_going=keep_going))


@app.command(rich_help_panel=_RUN)
@example("reelabel backfill --failed --code video_missing --dry-run")
@with_selection
@with_overrides
def backfill(  # noqa: PLR0913 - a command's options
    *,
    ids: Annotated[
        str, typer.Option(help="Comma-separated job ids, or ids of chunks, such as film#3.", rich_help_panel=_SELECTION)
    ] = "",
    ids_file: Annotated[
        str | None, typer.Option(help="File with one job id per line; - is standard input.", rich_help_panel=_SELECTION)
    ] = None,
    selection: Selection,
    force: Annotated[bool, typer.Option("--force", help="Also answer jobs that have a valid label.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Report what would be answered, an estimated time, and certain failures; exit 1 if any."
        ),
    ] = False,
    submit: Annotated[
        bool, typer.Option("--submit", help="Submit to the deployment backfill/by-ids instead of running here.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --submit: show progress until the submitted run ends.")
    ] = False,
    manifest: Annotated[str | None, typer.Option(help="Default: the manifest of --run, or of the last run.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Default: the dataset of the manifest's last run.")] = None,
    overrides: SpecOverrides,
) -> None:
    """Answer selected jobs again, by id or by outcome.

    Model, sampling, prompts and chunks stay those of the earlier run unless an option overrides them.
    """
    from flows.cli.backfill import BackfillOptions, run_backfill  # noqa: PLC0415

    options = BackfillOptions(
        selection=selection,
        ids=ids,
        ids_file=ids_file,
        manifest=manifest,
        dataset=dataset or None,
        overrides=overrides,
        force=force,
        submit=submit,
        wait=wait,
    )
    raise typer.Exit(run_backfill(options, dry_run=dry_run))


@app.command("catch-up", rich_help_panel=_RUN)
@example("reelabel catch-up --since 2026-11-01 --dry-run")
def catch_up(
    *,
    since: Annotated[str, typer.Option(help="First day, in the schedule's time zone, such as 2026-11-01.")],
    until: Annotated[str | None, typer.Option(help="Last day. Default: today.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the scheduled runs; start none. Exit 1 if one is certain to fail.")
    ] = False,
) -> None:
    """Run the nightly schedules of classify/nightly that were missed, one after another; exit 1 if one fails."""
    from flows.cli.schedule import catch_up as run  # noqa: PLC0415

    raise typer.Exit(run(since=since, until=until, dry_run=dry_run))


@app.command(rich_help_panel=_RUN)
@example("reelabel serve --port 8020")
def serve(
    *,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: serve.host, 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one. Default: serve.port.")
    ] = None,
    without_token: Annotated[
        bool | None,
        typer.Option(
            "--without-token", help="Accept requests from anyone who reaches the address. Default: serve.without_token."
        ),
    ] = None,
) -> None:
    """Answer single requests over HTTP until Ctrl-C, with the same caches and engines as runs."""
    from flows.cli.serve import run_server  # noqa: PLC0415

    raise typer.Exit(run_server(host=host, port=port, without_token=without_token))


@app.command(rich_help_panel=_RUN)
@example('reelabel live /dev/video0 --ask "Is the door open?" --choices yes,no --every 5')
def live(  # noqa: PLR0913 - a command's options
    source: Annotated[
        str,
        typer.Argument(help="A video file, played in real time; rtsp://, an HLS address, or /dev/video0."),
    ],
    *,
    ask: Annotated[list[str], typer.Option(help="A question; repeatable.")],
    choices: Annotated[
        str | None, typer.Option(help="Choices of the questions, separated by commas. Default: answers in words.")
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Seconds between questions. Default: ask at the end of a file, every 5 s of a stream."
        ),
    ] = None,
    fps: Annotated[float, typer.Option(min=0.01, max=30, help="Maximum frames per second to send.")] = 2.0,
    limit_s: Annotated[float | None, typer.Option(min=0, help="End after this many seconds. Default: never.")] = None,
    audio: Annotated[
        bool | None,
        typer.Option("--audio/--no-audio", help="Send the source's audio. Default: if the model takes audio."),
    ] = None,
    window_s: Annotated[
        float | None, typer.Option(min=0.1, help="Ask about the last this many seconds. Default: the server's window.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address of `reelabel serve`. Default: that of serve.host and serve.port.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per answer.")] = False,
) -> None:
    """Ask about a camera, a stream or a file in a live session; exit 1 if a question gets no answer."""
    from flows.cli.live.run import LiveOptions, run_live  # noqa: PLC0415

    options = LiveOptions(
        source=source,
        questions=tuple(ask),
        choices=None if choices is None else tuple(each.strip() for each in choices.split(",")),
        every_s=every,
        fps=fps,
        limit_s=limit_s,
        audio=audio,
        window_s=window_s,
        url=url,
        as_json=json,
    )
    raise typer.Exit(run_live(options))


@app.command(rich_help_panel=_INSPECT)
@example("reelabel status --watch")
def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds until Ctrl-C.")] = False,
) -> None:
    """Show how the last night went, what failed, how to repair it, and services, runs, plans and queues."""
    from flows.cli.status.page import show_status  # noqa: PLC0415

    show_status(load_settings(), watch=watch)


@app.command(rich_help_panel=_INSPECT)
@example("reelabel results last --format csv > labels.csv")
def results(
    run: Run = "last",
    form: Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")] = "table",
    *,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Add calibrated probabilities; see `reelabel calibrate`.")
    ] = False,
    chunks: Annotated[
        bool, typer.Option("--chunks", help="Print the chunks of cut jobs, or of described videos, instead of jobs.")
    ] = False,
    raw: Raw = False,
) -> None:
    """Print the current labels or descriptions, and the failures, of a run's dataset and spec."""
    from flows.cli.rows.results import print_results  # noqa: PLC0415

    print_results(run, form=form, with_calibrated=calibrated, raw=raw, chunks=chunks)


@app.command(rich_help_panel=_INSPECT)
@example("reelabel diff last")
def diff(
    run: Run = "last",
    earlier: Annotated[
        str | None, typer.Argument(help="Run to compare with. Default: the answers that RUN replaced.")
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print all compared answers as JSON.")] = False,
) -> None:
    """Show which labels a run changed, from what to what, and how margins moved, by task."""
    from flows.cli.rows.results import print_diff  # noqa: PLC0415

    print_diff(run, earlier, as_json=json)


@app.command(rich_help_panel=_INSPECT)
@example("reelabel report last --out run.html")
def report(
    run: Run = "last",
    out: Annotated[
        str | None, typer.Option(help="File to write. Default: reelabel-RUN.html in the current folder.")
    ] = None,
    job: Annotated[list[str] | None, typer.Option(help="Job id that the page must include; repeatable.")] = None,
    session: Annotated[
        str | None, typer.Option(help="Instead of a run, a live session: its id, a prefix of it, or 'last'.")
    ] = None,
) -> None:
    """Write a self-contained HTML page about a run: figures, failures, changes and the frames of its jobs."""
    if session is not None:
        from flows.cli.rows.sessions import write_session_report  # noqa: PLC0415

        if run != "last" or job:
            raise ConfigurationError("--session takes no run and no --job.")
        write_session_report(session, out=out)
        return
    from flows.cli.rows.results import write_report  # noqa: PLC0415

    write_report(run, out=out, job_ids=job or [])


@app.command(rich_help_panel=_INSPECT)
@example("reelabel audit last --json")
def audit(
    run: Run = "last",
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
    listing: Annotated[
        str | None,
        typer.Option("--list", help="Write the ids of jobs without a label to this .parquet, .csv or .txt file."),
    ] = None,
    raw: Raw = False,
) -> None:
    """Check a run's manifest against the database: every job must have ended exactly once; exit 1 if not."""
    from flows.cli.rows.results import print_audit  # noqa: PLC0415

    raise typer.Exit(print_audit(run, as_json=json, listing=listing, raw=raw))


@app.command(rich_help_panel=_INSPECT)
@example("reelabel frames clip.mp4 --sampler uniform --json")
@with_sampling
def frames(  # noqa: PLR0913 - a command's options
    video: Annotated[str, typer.Argument(help="Path or URI of a video.")],
    *,
    start_s: Annotated[float, typer.Option(min=0, help="Start of the segment, in seconds.")] = 0.0,
    end_s: Annotated[
        float | None, typer.Option(help="End of the segment, in seconds. Default: the video's end.")
    ] = None,
    sampling: SamplingOptions,
    every: Annotated[bool, typer.Option("--all", help="Take every keyframe.")] = False,
    as_stored: Annotated[bool, typer.Option("--as-stored", help="Leave frames unscaled and unrotated.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what the model would see as JSON.")] = False,
    npz: Annotated[str | None, typer.Option(help="Save the frames to this .npz file.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Save a contact sheet to this image file, such as x.png.")] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="vllm|SAMPLERS",
            help="Compare what several samplers show and decode, such as keyframes,uniform:16,native; or vllm: "
            "also show the frames of vLLM's own loader, and why they differ.",
        ),
    ] = None,
) -> None:
    """Show which frames of a video, or of a segment of it, the model would see."""
    from flows.cli.inspect import OutputOptions, show_frames  # noqa: PLC0415
    from reelabel.segment import Segment  # noqa: PLC0415

    view = OutputOptions(every=every, as_stored=as_stored, as_json=json, npz=npz, sheet=sheet, compare=compare)
    show_frames(video, view, segment=Segment.of(start_s, end_s), sampling=sampling)


@app.command(rich_help_panel=_INSPECT)
@example('reelabel search "people at a whiteboard" --top 20 --sheet found.png')
def search(  # noqa: PLR0913 - a command's options
    text: Annotated[str | None, typer.Argument(help="What to look for, in a few words.")] = None,
    *,
    bank: Annotated[
        str | None, typer.Option(help="Search for each text of a file: one per line, CSV or Parquet, as for tags.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="Search for what looks like this picture instead.")] = None,
    like: Annotated[
        str | None,
        typer.Option(metavar="JOB_ID@SECONDS", help="Search for what looks like this moment, such as film-7@12.5."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of moments to show per search.")] = 10,
    dataset: Annotated[str | None, typer.Option(help="Search only the videos of this dataset.")] = None,
    task: Annotated[str | None, typer.Option(help="Search only the videos of jobs of this task.")] = None,
    min_score: Annotated[
        float | None, typer.Option(min=-1, max=1, help="Leave out moments with a lower cosine.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of the embedding model. Default: describe.model.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Read all embedding files instead of the index: slow, but the reference.")
    ] = False,
    sheet: Annotated[str | None, typer.Option(help="Save the frames to this image file, such as x.png.")] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")] = "table",
    raw: Raw = False,
) -> None:
    """Find the moments in described videos that best fit a text, a picture or another moment; exit 1 if none do."""
    from flows.cli.rows.search import SearchOptions, run_search  # noqa: PLC0415

    options = SearchOptions(
        text=text,
        bank=bank,
        image=image,
        like=like,
        top=top,
        dataset=dataset,
        task=task,
        min_score=min_score,
        model=model,
        exact=exact,
        sheet=sheet,
        form=form,
        raw=raw,
    )
    raise typer.Exit(run_search(options))


@app.command(rich_help_panel=_INSPECT)
@example("reelabel prompt clip-7-colour --manifest jobs.parquet")
@with_overrides
def prompt(
    job_id: Annotated[str, typer.Argument(help="Id of a job in the manifest, or of one of its chunks.")],
    *,
    manifest: Annotated[str | None, typer.Option(help="Default: the manifest of the last run.")] = None,
    overrides: SpecOverrides,
    json: Annotated[bool, typer.Option("--json", help="Print it in full, as JSON.")] = False,
) -> None:
    """Print the exact prompt of a job, token by token, without loading the model's weights."""
    from flows.cli.inspect import show_prompt  # noqa: PLC0415

    raise typer.Exit(show_prompt(job_id, overrides, manifest=manifest, as_json=json))


@app.command(rich_help_panel=_OPERATE)
@example("reelabel deploy --manifest 's3://bucket/jobs/dt={scheduled_date}/*.parquet' --timezone Europe/Berlin")
def deploy(
    *,
    manifest: Annotated[
        str | None, typer.Option(help="Manifest of classify/nightly. Default: nightly.manifest, or as deployed.")
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Dataset of classify/nightly. Default: nightly.dataset, or as deployed, or for a manifest with dates "
            "one for each: jobs-{scheduled_date} for s3://bucket/jobs/dt={scheduled_date}/*.parquet."
        ),
    ] = None,
    cron: Annotated[
        str | None, typer.Option(help="Schedule of classify/nightly. Default: nightly.cron, or as deployed.")
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(help="Time zone of the schedule. Default: nightly.timezone, or as deployed.")
    ] = None,
    when_running: Annotated[
        str | None,
        typer.Option(
            help="If the previous night is still running: queue or skip. Default: nightly.when_running, or as deployed."
        ),
    ] = None,
    may_be_empty: Annotated[
        bool | None,
        typer.Option(
            "--may-be-empty/--no-may-be-empty",
            help="Accept up to two nights in a row without a manifest, and deploy even if it does not exist yet. "
            "Default: nightly.may_be_empty, or as deployed.",
        ),
    ] = None,
    unpause: Annotated[
        bool, typer.Option("--unpause", help="Also replace pauses and schedules that were set in Prefect.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change; change nothing.")] = False,
) -> None:
    """Create or update the Prefect deployments, and print for each what changes and when it runs next.

    What neither an option nor a setting names stays as deployed, as do pauses and schedules set in Prefect.
    """
    from flows.cli.schedule import deploy_all  # noqa: PLC0415

    asked = {
        "manifest": manifest,
        "dataset": dataset,
        "cron": cron,
        "timezone": timezone,
        "when_running": when_running,
        "may_be_empty": may_be_empty,
    }
    named = {name: value for name, value in asked.items() if value is not None}
    deploy_all(named, unpause=unpause, dry_run=dry_run)


@app.command(rich_help_panel=_OPERATE)
@example("reelabel maintain --dry-run")
def maintain(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be removed; remove nothing.")] = False,
) -> None:
    """Apply the retention settings and close the rows of lost runs, as maintain/daily does."""
    from flows.cli.schedule import maintain as run  # noqa: PLC0415

    run(dry_run=dry_run)


app.add_typer(evaluation_app)
app.add_typer(set_up_app)


if __name__ == "__main__":
    main()
