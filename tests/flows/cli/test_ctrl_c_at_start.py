"""Ctrl-C while a command is still being imported."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import flows

_PYPROJECT = Path(flows.__path__[0]).parent / "pyproject.toml"
# Ctrl-C arrives when the given module is about to be imported.
_START = """
import os, signal, sys

signal.signal(signal.SIGINT, signal.{handler})  # else a shell may have it ignored where the tests run

class Interrupt:
    @staticmethod
    def find_spec(name, *_):
        if name == "{at}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
sys.argv = ["reelabel", "--version"]
from {module} import {function}
{function}()
"""


def start(at, handler="default_int_handler"):
    script = tomllib.loads(_PYPROJECT.read_text())["project"]["scripts"]["reelabel"]
    module, _, function = script.partition(":")
    code = _START.format(handler=handler, at=at, module=module, function=function)
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("at", ["flows.cli.main", "typer", "flows.cli.command_group"])
def test_ctrl_c_during_the_imports_of_a_command_ends_it_silently(at):
    completed = start(at)

    assert (completed.returncode, completed.stdout, completed.stderr) == (130, "", "")


def test_a_command_that_a_shell_shields_from_ctrl_c_goes_on():
    completed = start("typer", handler="SIG_IGN")

    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.startswith("reelabel ")
