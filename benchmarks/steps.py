"""Steps of a long benchmark: figures are kept, so that the next run measures only what no time was left for."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reelabel_engine.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Steps:
    """Measures steps, unless a file has their figures.

    Attributes:
        left: Steps for which no time was left.
        failures: Why steps failed, by their name; the next run tries them again.
    """

    def __init__(self, path: Path, *, minutes: float | None, on_progress: Callable[[str], None]) -> None:
        """Read what was measured before.

        Args:
            path: A JSON object for each step; created if missing.
            minutes: Begin no step later than this; None sets no limit.
            on_progress: Called with a description of each step.
        """
        self.left: list[str] = []
        self.failures: dict[str, str] = {}
        self._path, self._on_progress = path, on_progress
        self._ends_s = time.monotonic() + 60 * minutes if minutes is not None else None
        path.parent.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, Any] = {}
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            with suppress(json.JSONDecodeError):  # a run that was killed may have left half a line
                step = json.loads(line)
                self._known[step["name"]] = step["figures"]
        if text and not text.endswith("\n"):
            path.write_text(f"{text}\n")

    def take(self, name: str, measure: Callable[[], Any]) -> Any:  # noqa: ANN401 - any JSON value
        """Return the figures of a step, as JSON has them; None if it failed or no time is left for it."""
        if name in self._known:
            self._on_progress(f"{name}: measured before")
            return self._known[name]
        if self._ends_s is not None and time.monotonic() >= self._ends_s:
            self.left.append(name)
            return None
        began_s = time.monotonic()
        self._on_progress(name)
        try:
            line = json.dumps({"name": name, "figures": measure()})
        except ModelError as error:
            self.failures[name] = error.message
            self._on_progress(f"{name}: failed: {error.message}")
            return None
        with self._path.open("a") as file:
            file.write(f"{line}\n")
        self._known[name] = json.loads(line)["figures"]
        self._on_progress(f"{name}: {time.monotonic() - began_s:.0f} s")
        return self._known[name]
