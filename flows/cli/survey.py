"""`reelabel manifest survey`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from flows.cli.console import (
    ERRORS,
    OUT,
    cell,
    make_table,
    print_line,
    print_notice,
    require_format,
    require_parent_folder,
    write_output,
)
from flows.cli.context import running_services
from flows.cli.options import example, with_survey
from flows.run.request import QuestionOptions
from flows.run.spec import make_spec, native_warning
from infra.embedded import ServiceName
from tasks.model.backend import backend_of
from tasks.survey.describe import amount, count, figure, headlines, title
from tasks.survey.take import SurveyOptions, take_survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flows.run.forecast import Forecast
    from tasks.survey.survey import Survey


@example("reelabel manifest survey jobs.parquet --sample 2000 --page survey.html")
@with_survey
def survey(
    manifest: Annotated[str, typer.Argument(help="Parquet file of jobs, or a glob; a local path or s3://.")],
    *,
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    page: Annotated[str | None, typer.Option(help="Also write a page with histograms to this .html file.")] = None,
    options: Any,  # noqa: ANN401 - the fields of a request
) -> None:
    """Profile a manifest's videos by their indexes: formats, keyframe coverage, and the cost of a run."""
    require_format(form, "table", "json")
    if page:
        require_parent_folder(page)
    survey_options = SurveyOptions(sample=options.sample, limit_s=options.limit_s, keep_going=options.keep_going)
    overrides = QuestionOptions(model=options.model, sampling=options.sampling)
    with running_services(ServiceName.S3) as settings:
        model_info = backend_of(settings).model_info(overrides.model, settings)
        if warning := native_warning(model_info, settings, overrides):
            print_notice(f"{warning}.")
        resolved = make_spec(model_info, settings, overrides).sampling
        with progress() as note:
            found = take_survey(manifest, settings, resolved, survey_options, note=note)
    if form == "json":
        OUT.file.write(f"{found.to_json()}\n")
    else:
        print_survey(found)
    if page:
        from tasks.survey.page import render  # noqa: PLC0415 - templates take a moment to import

        write_output(page, render(found))
        print_notice(f"Wrote {page}.")


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show the current step on standard error; yield a function that takes the step, the number done, and the total."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=ERRORS, transient=True, disable=not ERRORS.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def note(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of or None)

        yield note


def print_forecast(found: Forecast, *, again: str) -> int:
    """Print what a run would answer and cost, and the command that starts it; return the run's exit code."""
    for warning in found.warnings:
        print_notice(f"{warning}.")
    for line in found.lines:
        print_line(line)
    _print_indented(found.videos)
    if found.jobs:
        print_line(f"To answer them: {again}")
    return 0 if found.ends_well else 1


def print_survey(survey: Survey) -> None:
    """Print a survey in 80 columns, the most important facts first."""
    print_line((title(survey), "bold"))
    _print_indented(headlines(survey))
    _print_table(("a run", ""), amount(survey), numbers=0)
    figures = ((each.name, *(figure(value, each.unit) for value in each.quantiles)) for each in survey.distributions)
    _print_table(("clips", "least", "10%", "median", "90%", "most"), figures)
    kinds = {
        "codec": survey.codecs,
        "container": survey.containers,
        "size": survey.resolutions,
        "frames/s": survey.frame_rates,
        "cannot be used": survey.failed,
    }
    listed = (
        (name, ", ".join(f"{share.name} {count(share.clips)}" for share in shares))
        for name, shares in kinds.items()
        if shares
    )
    _print_table(("kind", "clips of each"), listed, numbers=0)
    _print_indented(f"{share.name}, such as: {share.example}" for share in survey.failed)
    groups = []
    for group in survey.groups:
        shares = (group.one_keyframe, group.not_covered, group.dense, group.failed)
        groups.append((group.title, group.clips, *(count(each) if each else "?" for each in shares)))
    _print_table(("task", "clips", "one keyframe", "not covered", "dense", "unusable"), groups)
    if survey.is_sample:
        OUT.print(f"\n{survey.method}")


def _print_indented(lines: Iterable[str]) -> None:
    for line in lines:
        OUT.print(Padding(cell(line), (0, 0, 0, 2)))


def _print_table(columns: Sequence[str], rows: Iterable[Iterable[object]], *, numbers: int | None = None) -> None:
    """Print a table, unless it is empty, whose columns are figures but for the first."""
    table = make_table(columns, rows, numbers=len(columns) - 1 if numbers is None else numbers, plain=True)
    if table.row_count:
        OUT.print()
        OUT.print(table)
