"""The command `reelabel`, in this process or as one of its own."""

import os
import subprocess
import sys
from contextlib import contextmanager
from unittest.mock import patch

from click.testing import CliRunner
from typer.main import get_command

# Consoles take their width from the environment when they are made, else each time they print: made here, they do so.
from flows.cli.main import app

_TIMEOUT_S = 500


def reelabel(environment, *arguments):
    """Run a command in this process, with this environment and no other; an exception that escapes it is raised."""
    with patch.dict(os.environ, environment, clear=True), _prefect_as_set():
        result = CliRunner().invoke(get_command(app), arguments, prog_name="reelabel")
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


def reelabel_process(environment, *arguments):
    """Run a command as users do: a process of its own, which takes seconds to begin."""
    command = [sys.executable, "-m", "flows.cli.main", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended


@contextmanager
def _prefect_as_set():
    """Have Prefect, which reads its environment once, read it again."""
    from prefect.context import SettingsContext, get_settings_context  # noqa: PLC0415
    from prefect.settings import Settings  # noqa: PLC0415

    with SettingsContext(profile=get_settings_context().profile, settings=Settings()):
        yield
