"""`reelabel manifest survey`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from flows.cli.console import ERRORS, OUT, cell, print_line, print_notice, require_parent_folder
from flows.cli.context import running_services
from flows.run.request import QuestionOptions
from flows.run.spec import make_spec, native_warning
from infra.embedded import ServiceName
from reelabel.errors import ConfigurationError
from tasks.model.backend import backend_of
from tasks.survey.describe import amount, count, figure, headlines, title
from tasks.survey.take import SurveyOptions, take_survey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from infra.settings import SamplingOptions
    from tasks.survey.survey import Survey

FORMATS = ("table", "json")


def survey_manifest(
    manifest: str, options: SurveyOptions, *, sampling: SamplingOptions, form: str = "table", page: str | None = None
) -> None:
    """Survey a manifest's videos, print what they are, and write the page if asked for."""
    if form not in FORMATS:
        raise ConfigurationError(f"Unknown format {form}; use one of {', '.join(FORMATS)}.")
    if page:
        require_parent_folder(page)
    overrides = QuestionOptions(sampling=sampling)
    with running_services(ServiceName.S3) as settings:
        card = backend_of(settings).card(None, settings)
        if warning := native_warning(card, settings, overrides):
            print_notice(f"{warning}.")
        asked = make_spec(card, settings, overrides).sampling
        with progress() as note:
            found = take_survey(manifest, settings, asked, options, note=note)
    if page:
        from tasks.survey.page import render  # noqa: PLC0415 - templates take a moment to import

        Path(page).write_text(render(found), encoding="utf-8")
    if form == "json":
        OUT.file.write(f"{found.to_json()}\n")
    else:
        print_survey(found)
    if page:
        print_notice(f"Wrote {page}.")


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show on standard error what is being done; yield a function that takes it and how much of how much is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=ERRORS, transient=True, disable=not ERRORS.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def note(what: str, done: int, of: int) -> None:
            bar.update(task, description=what, completed=done, total=of or None)

        yield note


def print_survey(survey: Survey) -> None:
    """Print a survey in 80 columns: first what matters before a run."""
    print_line((title(survey), "bold"))
    for line in headlines(survey):
        OUT.print(Padding(cell(line), (0, 0, 0, 2)))
    _print_run(survey)
    _print_figures(survey)
    _print_kinds(survey)
    _print_groups(survey)
    if survey.is_sample:
        OUT.print(f"\n{survey.method}")


def _print_run(survey: Survey) -> None:
    table = Table("a run", "", box=None, pad_edge=False, title_justify="left")
    for name, text in amount(survey):
        table.add_row(name, cell(text))
    OUT.print()
    OUT.print(table)


def _print_figures(survey: Survey) -> None:
    table = Table("clips", box=None, pad_edge=False)
    for name in ("least", "10%", "median", "90%", "most"):
        table.add_column(name, justify="right")
    for each in survey.distributions:
        table.add_row(each.name, *(figure(value, each.unit) for value in each.quantiles))
    if table.row_count:
        OUT.print()
        OUT.print(table)


def _print_kinds(survey: Survey) -> None:
    table = Table("kind", "clips of each", box=None, pad_edge=False)
    kinds = {
        "codec": survey.codecs,
        "container": survey.containers,
        "size": survey.resolutions,
        "frames/s": survey.frame_rates,
        "cannot be used": survey.failed,
    }
    for name, shares in kinds.items():
        if shares:
            table.add_row(name, cell(", ".join(f"{share.name} {count(share.clips)}" for share in shares)))
    OUT.print()
    OUT.print(table)
    for share in survey.failed:
        OUT.print(Padding(cell(f"{share.name}, such as: {share.example}"), (0, 0, 0, 2)))


def _print_groups(survey: Survey) -> None:
    if not survey.groups:
        return
    table = Table("task", box=None, pad_edge=False)
    for name in ("clips", "one keyframe", "not covered", "dense", "unusable"):
        table.add_column(name, justify="right")
    for group in survey.groups:
        shares = (group.one_keyframe, group.not_covered, group.dense, group.failed)
        table.add_row(cell(group.title), f"{group.clips:,}", *(count(each) if each else "?" for each in shares))
    OUT.print()
    OUT.print(table)
