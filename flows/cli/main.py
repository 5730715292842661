"""The command line.

Exit codes: 0 done; 1 failed, or finished with failures, rejected rows or not reconciled; 2 usage or configuration; 130
stopped by Ctrl-C, within ten seconds, or at once by a second one; 143 by SIGTERM.
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_group

from flows.cli.command_group import ReelabelGroup, add_shared_options, watch_signals
from infra.program import APPLICATION

_ENGINE = "reelabel-engine"


class Command(NamedTuple):
    """A command as `--help` lists it.

    Its module, imported on use, has a function of the same name, or several in a Typer app `commands`.
    """

    module: str
    panel: str
    summary: str


def _panel(panel: str, *commands: tuple[str, str, str]) -> dict[str, Command]:
    return {name: Command(f"flows.cli.{module}", panel, summary) for name, module, summary in commands}


COMMANDS = (
    _panel(
        "Start here",
        ("demo", "demo", "Run a complete example on generated clips: services, deployment, answers, summary."),
        (
            "classify",
            "runs.classify",
            "Label the jobs of a manifest, or ask one question about each video of a folder; valid labels are skipped.",
        ),
        (
            "describe",
            "runs.describe",
            "Tag, caption and find the scenes of the videos of a manifest; described videos are skipped.",
        ),
        ("search", "rows.search", "Search described videos by text, image or example."),
        ("results", "rows.results", "Print the labels, answers in words or descriptions, and the failures of a run."),
        ("report", "rows.report", "Write a self-contained HTML page about a run."),
        ("serve", "serve", "Answer single requests and live sessions over HTTP until Ctrl-C."),
        ("live", "live.run", "Ask questions about a camera, a stream or a file in real time."),
        ("doctor", "operations.services", "Check the installation and its services, and suggest fixes."),
    )
    | _panel(
        "Inspect",
        ("status", "status.page", "Show services, recent runs, failures and how to fix them."),
        ("job", "rows.job", "Show everything about one job, with its frames."),
        ("audit", "rows.audit", "Check that every job of a run's manifest has exactly one outcome."),
        ("diff", "rows.diff", "Compare the labels and margins of two runs; answers in words are left out."),
        (
            "duplicates",
            "rows.duplicates",
            "List groups of described videos that show the same thing, however they are encoded.",
        ),
        ("frames", "videos.frames", "Show which frames of a video the model would see."),
        (
            "replay",
            "videos.replay",
            "Write a page that replays the frames that keyframes and uniform sampling take from a video.",
        ),
        ("prompt", "videos.prompt", "Print the exact prompt of a job, token by token; no weights are loaded."),
        ("samplers", "videos.samplers", "List the frame samplers and their options."),
    )
    | _panel(
        "Evaluate",
        (
            "evaluate",
            "evaluation.evaluate",
            "Compare samplers, frame counts and models on a manifest with known answers.",
        ),
        ("calibrate", "evaluation.evaluate", "Fit a temperature on known answers so that confidence matches accuracy."),
        ("route", "evaluation.route", "Choose which jobs to escalate to a dense sampler."),
    )
    | _panel(
        "Operate",
        ("backfill", "runs.backfill", "Rerun selected jobs, by id or by outcome."),
        ("reference", "runs.backfill", "Mark a run as the reference of its manifest: backfills use its spec."),
        ("deploy", "operations.schedule", "Create or update the Prefect deployments."),
        ("catch-up", "operations.schedule", "Run missed scheduled runs of classify/nightly, oldest first."),
        ("worker", "operations.worker", "Extract or infer for runs with run.executor = remote."),
        ("maintain", "operations.schedule", "Apply the retention settings and close the rows of lost runs."),
        ("cache", "operations.cache", "List cached frame files, and evict old ones."),
        ("dataset", "operations.dataset", "Move the rows of a finished dataset to Parquet files, and back."),
        (
            "database",
            "operations.database",
            "Create the database's roles, upgrade its schema, back it up and restore it.",
        ),
    )
    | _panel(
        "Set up",
        ("manifest", "manifest", "Check manifests, survey their videos, and convert other formats to manifests."),
        ("up", "operations.services", "Start the embedded services and leave them running."),
        ("down", "operations.services", "Stop the embedded services; their data remains."),
        ("prepare", "operations.services", "Upgrade the database's schema and create the store's bucket."),
        ("config", "operations.services", "Print every setting with its value and meaning; secrets are masked."),
    )
)


def _load(name: str, command: Command) -> Any:  # noqa: ANN401 - Typer's own types
    module, app = import_module(command.module), typer.Typer(add_completion=False)
    app.callback()(lambda: None)  # otherwise an app with one command is that command
    if commands := getattr(module, "commands", None):
        app.add_typer(commands, name=name, help=command.summary, no_args_is_help=True)
    else:
        app.command(name)(getattr(module, name.replace("-", "_")))
    found = get_group(app).commands[name]
    for each in getattr(found, "commands", {name: found}).values():
        add_shared_options(each)
    return found


class CommandLine(ReelabelGroup):
    """All commands. Only the one in use is imported, because Prefect, settings and their models take a second."""

    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - Typer's own types
        return [*COMMANDS]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - Typer's own types
        """Find the command of the arguments; if there is none, Typer suggests the nearest of `commands`."""
        not_loaded: dict[str, Any] = dict.fromkeys(COMMANDS)
        self.commands = {**not_loaded, **self.commands}
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - Typer's own types
        """Return a command; for the list of commands, only its name and summary."""
        if (command := COMMANDS.get(cmd_name)) is None:
            return None
        if self._is_listing:
            return TyperCommand(cmd_name, help=command.summary, rich_help_panel=command.panel)
        if self.commands.get(cmd_name) is None:
            self.commands[cmd_name] = _load(cmd_name, command)
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - Typer's own types
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False


app = typer.Typer(
    name="reelabel",
    cls=CommandLine,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def main() -> None:
    watch_signals()
    if isinstance(sys.stdout, io.TextIOWrapper):  # None if it is closed
        sys.stdout.reconfigure(errors="backslashreplace")  # as that of stderr: locales may lack characters
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    os.environ.setdefault("DO_NOT_TRACK", "1")  # otherwise Prefect sends telemetry from a terminal
    app()


def _print_version(is_requested: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if is_requested:
        typer.echo(f"reelabel {version(APPLICATION)} (library {version('reelabel')}, engine {version(_ENGINE)})")
        raise typer.Exit


@app.callback(epilog="Example: reelabel demo")
def options(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 - handled by its callback
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Answer multiple-choice questions about millions of videos; describe, search and watch them."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        return
    from flows.cli.console import print_notice  # noqa: PLC0415
    from infra.proxies import bypass_proxies  # noqa: PLC0415

    if left_out := bypass_proxies():
        print_notice(f"{' and '.join(left_out)}: SOCKS proxies are not used without the package socksio; install it.")


if __name__ == "__main__":
    main()
