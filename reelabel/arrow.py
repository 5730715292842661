"""PyArrow, imported when it is first used: whoever only decodes videos does without it."""

from __future__ import annotations

from typing import Any

from reelabel.optional import require


def __getattr__(name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return an attribute of `pyarrow`, and keep it.

    Raises:
        ConfigurationError: PyArrow is not installed.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    pyarrow = require("pyarrow", extra="arrow", purpose="A frame file, a frame cache or a video in Parquet")
    return globals().setdefault(name, getattr(pyarrow, name))
