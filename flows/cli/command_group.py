"""The group of all commands: their order in the help, and how their errors are reported."""

from __future__ import annotations

import errno
import os
import select
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from flows.cli.console import print_error, print_notice
from infra import signals
from infra.errors import BudgetReachedError, NotReconciledError, RunFailedError
from infra.logs import json_line, logs_are_json
from infra.program import SETTINGS
from reelabel.disk import full_disk, is_full, temporary_root
from reelabel.errors import ConfigurationError, JobError, ReelabelError, TransientError
from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

_RUN_ERRORS = (JobError, TransientError, NotReconciledError, RunFailedError, BudgetReachedError)
_TO_CONTINUE = " the same command again to continue."
_PREFECT_SOURCES = "PREFECT_* variables, its profile, .env, prefect.toml and pyproject.toml"
_LIMITS = {
    errno.ENOMEM: "Out of memory; raise the limit (`ulimit -v` or the container's) or stop other programs.",
    errno.EAGAIN: "Cannot start a thread or process; raise the limit (`ulimit -u`, `ulimit -v`).",
    errno.EMFILE: "Too many open files; raise the limit (`ulimit -n`).",
    errno.ENFILE: "Too many open files on this machine; raise the limit (fs.file-max).",
}
# Errors of Python and of the dynamic linker, which have no errno.
_WORDS = dict.fromkeys(("can't allocate", "cannot allocate memory", "failed to map segment"), errno.ENOMEM)
_WORDS |= {"can't start new thread": errno.EAGAIN}


def watch_signals() -> None:
    """Make Ctrl-C and SIGTERM end this process within seconds, and a second Ctrl-C at once."""
    sentence = f"Stopped. Run{_TO_CONTINUE}"
    signals.install(json_line(sentence, level="WARNING") if logs_are_json() else sentence)


def _apply_settings(context: typer.Context, values: list[str] | None) -> None:
    """Set settings in the environment, which child processes inherit."""
    for each in values or ():
        from infra.settings import variable_of  # noqa: PLC0415

        name, separator, value = each.partition("=")
        if not separator:
            raise ConfigurationError(f"--set {each}: write SECTION.NAME=VALUE, such as --set sampling.fps=2.")
        variable = variable_of(name)
        if context.command.name == "backfill":
            _require_no_option(context.command, name)
        os.environ[variable] = value
        SETTINGS.append(each)


def _require_no_option(command: Any, name: str) -> None:  # noqa: ANN401 - Typer's own types
    """Refuse a setting that a backfill takes from the earlier run; such a setting has an option."""
    section, _, field = name.partition(".")
    for param in command.params:
        if param.name == (section if field == "name" else field):
            raise ConfigurationError(
                f"A backfill takes {name} from the earlier run; to change it, use {param.opts[0]}."
            )


def _show_all(context: typer.Context, is_requested: bool) -> None:  # noqa: FBT001 - as Typer calls it
    if not is_requested:
        return
    hidden = [param for param in context.command.params if isinstance(param, TyperOption) and param.hidden]
    for param in hidden:
        param.hidden = False
    typer.echo(context.get_help(), color=context.color)
    for param in hidden:
        param.hidden = True
    context.exit()


def _shared_options(
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            callback=_apply_settings,
            metavar="NAME=VALUE",
            help="Change a setting, such as sampling.fps=2; repeatable. `reelabel config` lists them.",
        ),
    ] = None,
    *,
    show_all: Annotated[
        bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show every option and exit.")
    ] = False,
) -> None:
    pass


def add_shared_options(command: Any) -> None:  # noqa: ANN401 - Typer's own types
    """Give a command `--set`, and, if `--help` does not show all of its options, `--help-all`."""
    app = typer.Typer(add_completion=False)
    app.command()(_shared_options)
    hides_some = any(getattr(param, "hidden", False) for param in command.params)
    for param in (each for each in get_command(app).params if each.name != "help"):
        param.expose_value = False
        if hides_some or param.name != "show_all":
            command.params.append(param)


class ReelabelGroup(TyperGroup):
    """Reports errors as one sentence and an exit code, never a traceback."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's own types
        """List commands in the order in which they are defined, groups last."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: isinstance(self.commands[name], TyperGroup))

    def get_params(self, ctx: Any) -> list[Any]:  # noqa: ANN401 - Typer's own types
        return _flags_without_type(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401 - Typer's own types
        command = super().get_command(ctx, cmd_name)
        for each in (command, *getattr(command, "commands", {}).values()):
            if each is not None:
                _flags_without_type(each.get_params(ctx))
        return command

    def make_context(self, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - Typer's own types
        with _errors_explained(), _usage_errors_printable():  # `--help` and `--version` print here
            return super().make_context(*arguments, **named)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - Typer's own types
        try:
            with _errors_explained(), _usage_errors_printable():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print_notice(f"Stopped with {stop} done; run{_TO_CONTINUE}" if str(stop) else f"Stopped. Run{_TO_CONTINUE}")
            signals.silence()
            sys.exit(signals.EXIT_CODE)


@contextmanager
def _errors_explained() -> Iterator[None]:
    """Print an expected error as a sentence, and exit with its code."""
    try:
        yield
    except Exception as error:
        is_unread = isinstance(error, OSError) and error.errno == errno.EPIPE and not _is_read()
        if is_unread or (found := _explain(error)) is None:
            raise  # at an unread output, Click exits quietly
        code, message, exit_code = found
        print_error(code, message)
        sys.exit(exit_code)


@contextmanager
def _usage_errors_printable() -> Iterator[None]:
    """Word usage errors plainly, and escape arguments: a shell glob may have expanded to file names."""
    try:
        yield
    except typer.TyperException as error:
        from pydantic import ValidationError  # noqa: PLC0415 - takes as long to import as all that `--help` needs

        from infra.validation import first_fault  # noqa: PLC0415

        if isinstance(error.__cause__, ValidationError):
            _, value, clause = first_fault(error.__cause__)
            error.message = f"{value} {clause}."
        error.message = escape_controls(f"{error.message}{_quoting(error.message)}")
        raise


def _flags_without_type(params: list[Any]) -> list[Any]:
    """Keep Typer from printing `<bool>` after flags in help texts, which reads as if they took a value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


def _quoting(message: str) -> str:
    """Return advice on extra arguments that are files, expanded by the shell from a pattern."""
    _, _, surplus = message.partition("Got unexpected extra argument")
    is_pattern = any(Path(word.strip("()")).exists() for word in surplus.split()[1:])
    return "; put a pattern in quotes, such as 'jobs/*.parquet'." if is_pattern else ""


def _explain(error: Exception) -> tuple[str, str, int] | None:
    """Return code, message and exit code of an expected error; None for a bug."""
    if isinstance(error, ReelabelError):
        return error.code, error.message, 1 if isinstance(error, _RUN_ERRORS) else 2
    if sentence := _limit_reached(error) or _explain_prefect_fault(error):
        return "configuration", sentence, 2
    if isinstance(error, ConnectionError):
        cause = error.strerror or type(error).__name__
        return "connection_lost", f"Lost connection to a child process ({cause}); run the command again.", 1
    if not isinstance(error, OSError):
        return None
    if is_full(error) and (full := full_disk(_written_folders(), error)):
        return full.code, full.message, 1
    where = f"{error.filename}: " if error.filename else ""
    message = f"{where}{error.strerror or error}; check the path and its permissions."
    return "configuration", escape_controls(message), 2


def _limit_reached(error: Exception) -> str | None:
    """Explain a limit of the operating system."""
    number = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    if isinstance(error, RuntimeError | ImportError):
        message = str(error).casefold()
        number = next((each for words, each in _WORDS.items() if words in message), None)
    return _LIMITS.get(number or 0)


def _explain_prefect_fault(error: Exception) -> str | None:
    """Explain an invalid Prefect setting, read when Prefect is imported; its value may be a secret."""
    frames = traceback.walk_tb(error.__traceback__) if isinstance(error, ValueError) else ()
    if not any(str(frame.f_globals.get("__name__")).startswith("prefect.settings") for frame, _ in frames):
        return None
    from pydantic import ValidationError  # noqa: PLC0415

    from infra.validation import first_fault  # noqa: PLC0415

    if isinstance(error, ValidationError):
        where, value, clause = first_fault(error)
        text = str(value).casefold()
        variables = sorted(
            name for name in os.environ if name.startswith("PREFECT_") and os.environ[name].casefold() == text
        )
        # A part of a value, such as a header, may be a secret.
        fault = f"{' or '.join(variables)}: {value!r}" if variables else f"Prefect's setting {where} ({error.title})"
        fault += f" {clause}; correct or remove it"
    else:
        fault = f"Prefect's settings cannot be read ({' '.join(str(error).split())})"
    return escape_controls(f"{fault}. Prefect reads {_PREFECT_SOURCES}.")


def _is_read() -> bool:
    """Return whether our output is still being read, so the broken pipe was another one."""
    output = select.poll()
    for descriptor in (1, 2):
        output.register(descriptor, 0)
    return not output.poll(0)


def _written_folders() -> list[Path]:
    """Return the folders that any command writes to; a redirected standard output is a file in one."""
    from infra.settings import load_settings  # noqa: PLC0415

    return [Path("/proc/self/fd/1").resolve().parent, load_settings().home, temporary_root(), Path.cwd()]
