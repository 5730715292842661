"""Manifests from CSV."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

_NUMBERS = ("start_s", "end_s")


def import_csv(path: Path) -> pl.DataFrame:
    """Read a CSV file with the manifest's column names; unknown columns are dropped.

    `choices` is a JSON list (`["yes", "no"]`) or is separated by bars (`yes|no`).

    Raises:
        ManifestError: The file cannot be read, or a value cannot; its line is named.
    """
    try:
        raw = pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ManifestError(f"Cannot read {path} as CSV: {error}.") from None
    columns = {name: raw[name].to_list() for name in raw.columns if name in COLUMNS}
    parsed = {
        name: [_value(name, text, line=line, path=path) for line, text in enumerate(values, start=2)]
        for name, values in columns.items()
    }
    return pl.DataFrame(parsed, schema={name: COLUMNS[name] for name in parsed})


def _value(name: str, text: str | None, *, line: int, path: Path) -> object:
    if text is None:
        return None
    try:
        if name in _NUMBERS:
            return float(text)
        return _choices(text) if name == "choices" else text
    except ValueError:
        raise ManifestError(f"{path}, line {line}: {name} {text!r} cannot be read.") from None


def _choices(text: str) -> list[str]:
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split("|")]
    values = json.loads(text)
    return [str(value) for value in values]
