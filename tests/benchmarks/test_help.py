import shlex
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import benchmarks
from benchmarks.__main__ import app

COMMANDS = sorted(path.parent.name for path in Path(benchmarks.__path__[0]).glob("*/command.py"))


def test_help_lists_every_benchmark():
    shown = CliRunner().invoke(app, ["--help"])

    assert shown.exit_code == 0
    for name in ("decode", "pipeline", "trade", "conformance"):
        assert name in shown.stdout


@pytest.mark.parametrize("folder", COMMANDS)
def test_every_bench_of_a_folder_is_a_command_and_its_example_is_valid(folder):
    for bench in import_module(f"benchmarks.{folder}.command").BENCHES:
        name, *arguments = shlex.split(bench.example)

        command = get_command(app).commands[name]

        assert name == bench.run.__name__.replace("_", "-")
        command.make_context(name, arguments)
