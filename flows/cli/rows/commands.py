"""The commands that show what runs did."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import example, with_overrides, with_sampling
from flows.run.request import QuestionOptions  # noqa: TC001 - defines a command's options
from infra.settings import SamplingOptions, load_settings
from reelabel.errors import ConfigurationError

app = typer.Typer()
Run = Annotated[str, typer.Argument(help="Run id, a prefix of it, or 'last'.")]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="Write text to CSV unchanged, even where a spreadsheet would run it as a formula."),
]


@app.command()
@example("reelabel status --watch")
def status(
    *,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds until Ctrl-C.")] = False,
) -> None:
    """Show services, recent runs, failures and how to fix them."""
    from flows.cli.status.page import show_status  # noqa: PLC0415

    show_status(load_settings(), watch=watch)


@app.command()
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
    """Print the labels or descriptions and the failures of a run."""
    from flows.cli.rows.results import print_results  # noqa: PLC0415

    print_results(run, form=form, with_calibrated=calibrated, raw=raw, chunks=chunks)


@app.command()
@example("reelabel job clip-7-colour --sheet frames.png")
def job(
    job_id: Annotated[str, typer.Argument(help="Id of a job that has an outcome.")],
    *,
    dataset: Annotated[str | None, typer.Option(help="Show only its outcomes in this dataset. Default: all.")] = None,
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    sheet: Annotated[
        str | None,
        typer.Option(
            help="Save the frames to this image file, such as x.png. Default: shown in a terminal that can, or "
            "saved in the home folder."
        ),
    ] = None,
) -> None:
    """Show all that is known of one job, with its frames.

    That is its outcomes by run and spec, its question, and where its frames were taken.
    """
    from flows.cli.rows.job import print_job  # noqa: PLC0415

    print_job(job_id, dataset=dataset, form=form, sheet=sheet)


@app.command()
@example("reelabel diff last")
def diff(
    run: Run = "last",
    earlier: Annotated[
        str | None, typer.Argument(help="Run to compare with. Default: the answers that RUN replaced.")
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print all compared answers as JSON.")] = False,
) -> None:
    """Compare the labels and margins of two runs."""
    from flows.cli.rows.results import print_diff  # noqa: PLC0415

    print_diff(run, earlier, as_json=json)


@app.command()
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
    """Write a self-contained HTML page about a run."""
    if session is not None:
        from flows.cli.rows.sessions import write_session_report  # noqa: PLC0415

        if run != "last" or job:
            raise ConfigurationError("--session takes no run and no --job.")
        write_session_report(session, out=out)
        return
    from flows.cli.rows.results import write_report  # noqa: PLC0415

    write_report(run, out=out, job_ids=job or [])


@app.command()
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
    manifest: Annotated[str | None, typer.Option(help="Where the run's manifest is now, if it was moved.")] = None,
) -> None:
    """Check that every job of a run's manifest ended exactly once.

    Exits with 1 if not.
    """
    from flows.cli.rows.results import print_audit  # noqa: PLC0415

    raise typer.Exit(print_audit(run, as_json=json, listing=listing, raw=raw, manifest=manifest))


@app.command()
@example("reelabel frames clip.mp4 --sampler uniform --json")
@with_sampling
def frames(  # noqa: PLR0913 - a command's options
    video: Annotated[str, typer.Argument(help="Path or URI of a video.")],
    *,
    start_s: Annotated[float, typer.Option(min=0, help="Start of the segment, in seconds.")] = 0.0,
    end_s: Annotated[
        float | None, typer.Option(min=0, help="End of the segment, in seconds. Default: the video's end.")
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
    """Show which frames of a video the model would see."""
    from flows.cli.inspect import OutputOptions, show_frames  # noqa: PLC0415
    from reelabel.segment import Segment  # noqa: PLC0415

    view = OutputOptions(every=every, as_stored=as_stored, as_json=json, npz=npz, sheet=sheet, compare=compare)
    show_frames(video, view, segment=Segment.of(start_s, end_s), sampling=sampling)


@app.command()
@example("reelabel replay clip.mp4 --out clip.html")
def replay(
    video: Annotated[str, typer.Argument(help="Path or URI of a video.")],
    *,
    out: Annotated[str | None, typer.Option(help="File to write. Default: reelabel-replay-VIDEO.html.")] = None,
) -> None:
    """Write a page that replays what keyframes and uniform sampling show of a video.

    A slider sets the number of frames; the frames, and what is decoded for them, follow.
    """
    from flows.cli.replay import write_replay  # noqa: PLC0415

    write_replay(video, out=out)


@app.command()
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
    sheet: Annotated[str | None, typer.Option(help="Save the frames to this image file, such as x.png.")] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")] = "table",
    raw: Raw = False,
) -> None:
    """Search described videos by text, image or example.

    Exits with 1 if nothing is found.
    """
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
        sheet=sheet,
        form=form,
        raw=raw,
    )
    raise typer.Exit(run_search(options))


@app.command()
@example("reelabel duplicates --dataset films --similarity 0.95")
def duplicates(
    *,
    similarity: Annotated[
        float,
        typer.Option(min=0.5, max=1, help="Least mean cosine of each frame with the most similar one of the other."),
    ] = 0.95,
    dataset: Annotated[str | None, typer.Option(help="Compare only the videos of this dataset.")] = None,
    task: Annotated[str | None, typer.Option(help="Compare only the videos of jobs of this task.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name of the embedding model. Default: describe.model.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or parquet.")] = "table",
    raw: Raw = False,
) -> None:
    """List groups of described videos that show the same, however they are encoded.

    Exits with 1 if there are none.
    """
    from flows.cli.rows.duplicates import list_duplicates  # noqa: PLC0415

    found = list_duplicates(similarity, dataset=dataset, task=task, model=model, form=form, raw=raw)
    raise typer.Exit(0 if found else 1)


@app.command()
@example("reelabel prompt clip-7-colour --manifest jobs.parquet")
@with_overrides
def prompt(
    job_id: Annotated[str, typer.Argument(help="Id of a job in the manifest, or of one of its chunks.")],
    *,
    manifest: Annotated[str | None, typer.Option(help="Default: the manifest of the last run.")] = None,
    overrides: QuestionOptions,
    json: Annotated[bool, typer.Option("--json", help="Print it in full, as JSON.")] = False,
) -> None:
    """Print the exact prompt of a job, token by token; no weights are loaded."""
    from flows.cli.inspect import show_prompt  # noqa: PLC0415

    raise typer.Exit(show_prompt(job_id, overrides, manifest=manifest, as_json=json))
