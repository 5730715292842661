"""Where benchmarks print: results on standard output, progress on standard error."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console

OUT = Console(width=None if sys.stdout.isatty() else 160)  # a file has no width of its own
PROGRESS = Console(stderr=True)


def print_json(value: Any) -> None:  # noqa: ANN401 - any JSON value
    """Print a report for programs, whatever the width of the terminal."""
    print(json.dumps(value, indent=2))  # noqa: T201
