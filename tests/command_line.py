"""The command `reelabel`, in this process or in a new one."""

import os
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from unittest.mock import patch

from click.testing import CliRunner
from typer.main import get_command

# Imported before the environment is patched: a console created with COLUMNS set would keep that width.
from flows.cli.main import app

_TIMEOUT_S = 500


def reelabel(environment, *arguments):
    """Run a command in this process with exactly this environment; raise any exception that it does not handle."""
    with patch.dict(os.environ, environment, clear=True), _prefect_settings_of(environment):
        result = CliRunner().invoke(_command(), arguments, prog_name="reelabel")
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


def reelabel_process(environment, *arguments):
    """Run a command as users do, in a new process, which takes seconds to start."""
    command = [sys.executable, "-m", "flows.cli", *arguments]
    completed = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    assert "Traceback" not in completed.stdout + completed.stderr
    return completed


_command = cache(lambda: get_command(app))


@contextmanager
def _prefect_settings_of(environment):
    """Make Prefect read this environment; by default it reads one, once."""
    from prefect.context import SettingsContext, get_settings_context  # noqa: PLC0415

    own = tuple(sorted(item for item in environment.items() if item[0].startswith("PREFECT_")))
    with SettingsContext(profile=get_settings_context().profile, settings=_prefect_settings(own)):
        yield


@cache
def _prefect_settings(_variables):
    """Read them from the environment."""
    from prefect.settings import Settings  # noqa: PLC0415

    return Settings()
