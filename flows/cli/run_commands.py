"""The commands that run: classify, describe, backfill, live and the like."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows.cli.options import IdFile, example, with_classify, with_describe, with_overrides, with_selection
from flows.run.request import QuestionOptions  # noqa: TC001 - defines a command's options
from reelabel.errors import ConfigurationError
from tasks.results.selection import Selection  # noqa: TC001 - defines a command's options

_SELECTION = "Job selection"
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Survey up to 300 clips (30 s), estimate the cost; exit as the run would, by this sample.",
    ),
]


@example("reelabel classify 's3://videos/jobs/*.parquet' --dataset animals")
@with_classify
def classify(
    source: Annotated[
        str,
        typer.Argument(
            metavar="MANIFEST|VIDEOS",
            help="Parquet file of jobs; with --prompt, a folder of videos or a video. Or a glob.",
        ),
    ] = "",
    *,
    prompt: Annotated[
        str | None,
        typer.Option(help="Instead of a manifest, a question about each video. Run it again to add new videos."),
    ] = None,
    choices: Annotated[
        str | None, typer.Option(help="Choices of --prompt, such as yes|no. Default: answers in words.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            hidden=True,
            help="Rerun the questions of a recorded live session (id, prefix or 'last') on the same frames.",
        ),
    ] = None,
    given: Any,  # noqa: ANN401 - the fields of a request
    dry_run: DryRun = False,
    id_file: IdFile = None,
) -> None:
    """Label the jobs of a manifest, or one question about each video of a folder; valid labels are kept."""
    if session is not None:
        from flows.cli.rows.sessions import classify_session  # noqa: PLC0415

        if source or prompt or choices or dry_run or given.keep_going:
            raise ConfigurationError("--session takes no manifest, no videos, no --dry-run and no --keep-going.")
        raise typer.Exit(classify_session(session, given))
    from flows.cli.runs.classify import ClassifyOptions, run_classify  # noqa: PLC0415 - Prefect takes a second to import
    from flows.cli.runs.dry_run import forecast_classify  # noqa: PLC0415
    from tasks.manifest.one_question import QuestionOnVideos  # noqa: PLC0415

    options = ClassifyOptions(
        source=source,
        question=QuestionOnVideos.of(source, prompt, choices),
        given=given,
        id_file=id_file,
    )
    raise typer.Exit(forecast_classify(options) if dry_run else run_classify(options))


@example("reelabel describe 's3://videos/jobs/*.parquet' --tags products.txt --dataset animals")
@with_describe
def describe(
    manifest: Annotated[
        str, typer.Argument(help="Parquet file of jobs, or a glob; only job_id and video_uri are needed.")
    ],
    *,
    given: Any,  # noqa: ANN401 - the fields of a request
    id_file: IdFile = None,
) -> None:
    """Tag, caption and find the scenes of the videos of a manifest; described videos are skipped.

    With other banks or another method, cached embeddings are reused and nothing is decoded.
    """
    from flows.cli.runs.run import run_describe  # noqa: PLC0415 - Prefect takes a second to import

    raise typer.Exit(run_describe(manifest, given, id_file))


@example("reelabel backfill --failed --code video_missing --dry-run")
@with_selection
@with_overrides
def backfill(  # noqa: PLR0913 - a command's options
    *,
    ids: Annotated[str, typer.Option(help="Comma-separated job ids.", rich_help_panel=_SELECTION)] = "",
    ids_file: Annotated[
        str | None, typer.Option(help="File with one job id per line; - is standard input.", rich_help_panel=_SELECTION)
    ] = None,
    selection: Selection,
    force: Annotated[bool, typer.Option("--force", help="Also answer jobs that have a valid label.")] = False,
    dry_run: DryRun = False,
    submit: Annotated[
        bool, typer.Option("--submit", help="Submit to the deployment backfill/by-ids instead of running here.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="With --submit: show progress until the submitted run ends.")
    ] = False,
    manifest: Annotated[str | None, typer.Option(help="Default: the manifest of --run, or of the last run.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Default: the dataset of the manifest's last run.")] = None,
    overrides: QuestionOptions,
    id_file: IdFile = None,
) -> None:
    """Rerun selected jobs, by id or by outcome.

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
        id_file=id_file,
    )
    raise typer.Exit(run_backfill(options, dry_run=dry_run))


@example("reelabel reference 1a2b3c4d")
def reference(
    run: Annotated[str, typer.Argument(help="Run id, a prefix of it, or 'last'.")],
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the run's mark.")] = False,
) -> None:
    """Mark a run as the reference of its manifest: backfills use its spec.

    Without a mark, they use that of the last run of the whole manifest.
    """
    from flows.cli.runs.backfill import mark  # noqa: PLC0415

    mark(run, is_reference=not remove)


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
        float | None,
        typer.Option(
            min=0.1,
            help="Ask about the last this many seconds, and the first four frames. Default: the server's window.",
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Address of `reelabel serve`. Default: that of serve.host and serve.port.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per answer.")] = False,
) -> None:
    """Ask about a camera, a stream or a file as it plays.

    Exits with 1 if a question gets no answer.
    """
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
