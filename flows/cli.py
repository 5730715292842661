"""The command line.

Exit codes: 0 done, 1 finished with failures, not reconciled or cut off, 2 usage or configuration,
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from flows.commands.sampling_options import with_sampling
from flows.commands.terminal import ERRORS, complain
from infra.errors import JobError, NotReconciledError, ReelabelError, TransientError
from infra.settings import SamplingChoice, load_settings

if TYPE_CHECKING:
    from collections.abc import Callable


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
_BENCH_CLIPS = Path(".reelabel/bench")
bench_app = typer.Typer(help="Measure and try the extraction.", no_args_is_help=True)
app.add_typer(bench_app, name="bench")


def main() -> None:
    """Run a command."""
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    app()


def example(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Close a command's help with an example."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        function.__doc__ = f"{function.__doc__}\n\n[dim]Example:[/dim] {text}"
        return function

    return add


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


@app.command()
@example("reelabel classify s3://videos/jobs/*.parquet --dataset animals")
@with_sampling
def classify(
    manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob; local or s3://.")],
    dataset: Annotated[str | None, typer.Option(help="Where job ids are unique; else the file's name.")] = None,
    num_frames: NumFrames = None,
    model: Annotated[str | None, typer.Option(help="Model folder or hub name.")] = None,
    *,
    sampling: SamplingChoice,
    force: Annotated[bool, typer.Option("--force", help="Ask again even where a valid label stands.")] = False,
) -> None:
    """Answer every job of a manifest that has no valid label yet."""
    from flows.commands.run import run_classify  # noqa: PLC0415 - Prefect takes a second to import

    code = run_classify(manifest, dataset=dataset, num_frames=num_frames, sampling=sampling, model=model, force=force)
    raise typer.Exit(code)


@app.command()
@example("reelabel backfill --ids clip-7-colour,clip-9-shape --force")
@with_sampling
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
    sampling: SamplingChoice,
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
    )
    raise typer.Exit(code)


@app.command()
@example("reelabel results last --format csv > labels.csv")
def results(
    run: Annotated[str, typer.Argument(help="Run id, its beginning, or 'last'.")] = "last",
    form: Format = "table",
) -> None:
    """Print the labels and failures that stand for a run's dataset and spec."""
    from flows.commands.show import print_results  # noqa: PLC0415

    print_results(run, form=form)


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


@bench_app.command("fuzz")
@example("reelabel bench fuzz --count 5000 --seed 7")
def bench_fuzz(
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="Damaged files to make.")] = 300,
    seed: Annotated[int, typer.Option(min=0, help="The same seed makes the same files.")] = 0,
    *,
    only: Annotated[str, typer.Option(help="Damage such files alone, as `avi` or `avi/mpeg4`.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    keep: Annotated[str | None, typer.Option(help="Folder for the files that went wrong.")] = None,
) -> None:
    """Damage files of every container, and compare what is extracted with a linear decode; exit 1 where it differs."""
    from flows.commands.bench import fuzz  # noqa: PLC0415

    raise typer.Exit(fuzz(count, seed=seed, only=only, as_json=json, keep=keep))


Lengths = Annotated[str, typer.Option("--lengths", help="Lengths of clips in seconds, with commas between.")]
ClipFolder = Annotated[Path, typer.Option("--folder", help="Where clips are made once; an hour takes 2 GB.")]
Rounds = Annotated[int, typer.Option(min=1, max=1000, help="How often each way is taken; medians are shown.")]
Plot = Annotated[str | None, typer.Option(help="SVG file to draw.")]


@bench_app.command("decode")
@example("reelabel bench decode --lengths 30,600 --plot decode.svg")
def bench_decode(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = _BENCH_CLIPS,
    rounds: Rounds = 7,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    plot: Plot = None,
) -> None:
    """Measure decoding beside other loaders, and beside decoding the picked packets alone."""
    from flows.commands.measure import decode  # noqa: PLC0415

    decode(_lengths_s(lengths), folder, rounds=rounds, as_json=json, plot=plot)


@bench_app.command("fetch")
@example("reelabel bench fetch --lengths 30,600 --plot bytes.svg")
def bench_fetch(
    lengths: Lengths = "30,600,3600",
    folder: ClipFolder = _BENCH_CLIPS,
    rounds: Rounds = 5,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    plot: Plot = None,
) -> None:
    """Measure what is read of clips on the S3 server, and how long that takes."""
    from flows.commands.measure import fetch  # noqa: PLC0415

    fetch(_lengths_s(lengths), folder, rounds=rounds, as_json=json, plot=plot)


@bench_app.command("similar")
@example("reelabel bench similar --threshold 0.9")
def bench_similar(
    threshold: Annotated[float, typer.Option(min=0.01, max=0.99, help="Similarity above which frames go.")] = 0.95,
    folder: Annotated[Path, typer.Option("--folder", help="Where scenes are filmed once.")] = _BENCH_CLIPS,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Count the frames that drop_similar leaves of static scenes, and of moving ones."""
    from flows.commands.measure_frames import similar  # noqa: PLC0415

    similar(folder, threshold=threshold, as_json=json)


@bench_app.command("cache")
@example("reelabel bench cache --entries 1000,10000")
def bench_cache(
    entries: Annotated[str, typer.Option(help="Numbers of files, ascending, with commas between.")] = "10000,100000",
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure time and memory of cache ls and cache gc by the number of files, on the store that is set."""
    from flows.commands.measure_frames import cache  # noqa: PLC0415

    cache(_numbers(entries, "--entries"), as_json=json)


@bench_app.command("store")
@example("reelabel bench store --json")
def bench_store(
    length: Annotated[int, typer.Option(min=1, max=3600, help="Length of the clips in seconds.")] = 60,
    folder: ClipFolder = _BENCH_CLIPS,
    rounds: Rounds = 7,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Measure bytes and milliseconds of storing frames, on the S3 server and off it."""
    from flows.commands.measure import store  # noqa: PLC0415

    store(length, folder, rounds=rounds, as_json=json)


def _lengths_s(text: str) -> tuple[int, ...]:
    return _numbers(text, "--lengths")


def _numbers(text: str, option: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) >= 1 for part in parts):
        raise typer.BadParameter(f"{text!r} is no list of whole numbers; write for example 30,600.", param_hint=option)
    return tuple(map(int, parts))


if __name__ == "__main__":
    main()
