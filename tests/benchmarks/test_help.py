from typer.testing import CliRunner

from benchmarks.__main__ import app


def test_help_lists_every_benchmark():
    shown = CliRunner().invoke(app, ["--help"])

    assert shown.exit_code == 0
    for name in ("decode", "pipeline", "trade", "conformance"):
        assert name in shown.stdout
