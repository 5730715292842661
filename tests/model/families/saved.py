"""Models of `architectures`, saved by the engine's Python: this one has nothing of what they are made of."""

from tests.engine_python import run_by_engine

_SAVE = """
import sys
from pathlib import Path
from tests.model.families.architectures import save

for family in sys.argv[2:]:
    save(family, Path(sys.argv[1]) / family)
"""


def save_all(families, folder):
    """Save the models that `families` name, with random weights, in folders of their own."""
    run_by_engine("-c", _SAVE, folder, *families)


def saved(family, folder):
    """Save one model, and return its folder."""
    save_all([family], folder)
    return folder / family
