"""docs/tutorial.md, whose commands are run, in order, in the folder of a checkout."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from infra.embedded import export
from tests.command_line import reelabel

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(console)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
INSTALLATION = ["make demo", "source .venv/bin/activate"]


def test_its_commands_print_what_it_shows(own_services, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks").symlink_to(ROOT / "tasks")
    environment = os.environ | export(own_services)
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    installed, printed = [], ""

    for kind, block in BLOCK.findall((ROOT / "docs/tutorial.md").read_text()):
        for line in block.splitlines():
            if not kind:
                assert line in printed
                continue
            program, *arguments = shlex.split(line)
            match program:
                case "make" | "source":
                    installed.append(line)
                case "export":
                    environment |= dict([arguments[0].split("=", 1)])
                case "reelabel":
                    completed = reelabel(environment, *arguments)
                    assert completed.returncode == 0, completed.stdout + completed.stderr
                    printed += completed.stdout
                case _:
                    subprocess.run([program, *arguments], env=environment, check=True)

    assert installed == INSTALLATION
    assert (tmp_path / "colours.html").stat().st_size > 10_000
