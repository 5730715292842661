"""PyArrow, imported on first use: decoding videos does not need it."""

from __future__ import annotations

from typing import Any

from reelabel.optional import require


def __getattr__(name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Return an attribute of `pyarrow`, and cache it.

    Raises:
        ConfigurationError: PyArrow is not installed.
    """
    if name.startswith("__"):
        raise AttributeError(name)
    return globals().setdefault(name, getattr(_pyarrow(), name))


def arrow_file(table: Any, *, options: Any = None) -> bytes:  # noqa: ANN401
    """Serialize a table as an Arrow IPC file, by `pyarrow.ipc.IpcWriteOptions`."""
    pyarrow = _pyarrow()
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _pyarrow() -> Any:  # noqa: ANN401
    return require("pyarrow", extra="arrow", purpose="A frame file, a frame cache or a video in Parquet")
