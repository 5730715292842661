"""Models of `architectures`, saved by a process of their own: this one must not import what they are made of."""

import subprocess
import sys
from pathlib import Path

from reelabel_engine.environment import engine_environment
from reelabel_engine.protocol import EngineConfig
from tasks.model.identity import TINY_MODEL

_SAVE = "import sys; from pathlib import Path; from tests.model.families.architectures import save; "


def saved(family, folder):
    """Save the model that `family` names, with random weights, in a folder of its own, which is returned."""
    environment = engine_environment(EngineConfig(model=str(TINY_MODEL)))
    environment["PYTHONPATH"] += f":{Path(__file__).parents[3]}"
    command = [sys.executable, "-c", _SAVE + "save(sys.argv[1], Path(sys.argv[2]))", family, str(folder / family)]
    subprocess.run(command, check=True, env=environment, cwd=folder)
    return folder / family
