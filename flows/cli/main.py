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
from flows.cli.console import print_notice
from flows.cli.evaluation.commands import evaluation_app
from flows.cli.groups import cache_app, database_app, manifest_app, route_app, worker_app
from flows.cli.options import Dataset, example, with_describing, with_overrides, with_selection
from flows.cli.rows.commands import inspect_app
from flows.cli.set_up.commands import set_up_app
from flows.run.parameters import SpecOverrides  # noqa: TC001 - defines a command's options
from infra.interrupts import end_at_hangup
from infra.proxies import go_around_proxies
from infra.settings.describe import DescribeOptions  # noqa: TC001 - defines a command's options
from reelabel.errors import ConfigurationError
from tasks.results.selection import Selection  # noqa: TC001 - defines a command's options

_RUN, _, _EVALUATE, _OPERATE, _SET_UP = PANELS
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
    end_at_hangup()
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
        return
    if left_out := go_around_proxies():
        print_notice(f"{' and '.join(left_out)}: SOCKS proxies are not used without the package socksio; install it.")


_SELECTION = "Job selection"


@app.command(rich_help_panel=_RUN)
@example("reelabel classify 's3://videos/jobs/*.parquet' --dataset animals")
@with_overrides
def classify(  # noqa: PLR0913 - a command's options
    source: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST|VIDEOS",
            help="Parquet file of jobs, or a glob; with --prompt, a folder, a glob or a file of videos. A local path "
            "or s3://.",
        ),
    ] = "",
    *,
    prompt: Annotated[
        str | None,
        typer.Option(help="Instead of a manifest, a question about each video. Run it again to add new videos."),
    ] = None,
    choices: Annotated[str | None, typer.Option(help="Choices of --prompt, separated by bars: yes|no.")] = None,
    dataset: Dataset = None,
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
    """Answer every job of a manifest that has no valid label yet, or one question about each of some videos."""
    if session is not None:
        from flows.cli.rows.sessions import classify_session  # noqa: PLC0415

        if source or prompt or choices or dry_run or keep_going:
            raise ConfigurationError("--session takes no manifest, no videos, no --dry-run and no --keep-going.")
        raise typer.Exit(classify_session(session, overrides=overrides, dataset=dataset, force=force))
    from flows.cli.runs.classify import ClassifyOptions, run_classify  # noqa: PLC0415 - Prefect takes a second to import
    from flows.cli.runs.dry_run import forecast_classify  # noqa: PLC0415
    from tasks.manifest.one_question import QuestionOnVideos  # noqa: PLC0415

    options = ClassifyOptions(
        source=source,
        question=QuestionOnVideos.of(source, prompt, choices),
        overrides=overrides,
        dataset=dataset,
        force=force,
        keep_going=keep_going,
    )
    raise typer.Exit(forecast_classify(options) if dry_run else run_classify(options))


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
    from flows.cli.runs.run import run_describe  # noqa: PLC0415 - Prefect takes a second to import

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
    from flows.cli.runs.backfill import BackfillOptions, run_backfill  # noqa: PLC0415

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


@app.command(rich_help_panel=_RUN)
@example("reelabel reference 1a2b3c4d")
def reference(
    run: Annotated[str, typer.Argument(help="Run id, a prefix of it, or 'last'.")],
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the run's mark.")] = False,
) -> None:
    """Mark a run as the reference of its manifest: backfills take its spec instead of that of the last whole run."""
    from flows.cli.runs.backfill import mark  # noqa: PLC0415

    mark(run, is_reference=not remove)


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
        str | None,
        typer.Option(help="Choices of the questions, separated by bars or commas. Default: answers in words."),
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
        choices=None if choices is None else tuple(map(str.strip, choices.split("|" if "|" in choices else ","))),
        every_s=every,
        fps=fps,
        limit_s=limit_s,
        audio=audio,
        window_s=window_s,
        url=url,
        as_json=json,
    )
    raise typer.Exit(run_live(options))


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


app.add_typer(inspect_app)
app.add_typer(evaluation_app)
app.add_typer(set_up_app)


if __name__ == "__main__":
    main()
