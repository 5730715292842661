"""Any CSV, by a mapping from the manifest's columns to the file's."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.layouts.source import require_columns, strip_letter, strip_letters
from tasks.manifest.schema import COLUMNS, REQUIRED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tasks.manifest.layouts.source import BenchmarkFiles


_TEXT, _LETTER, _NUMBER = "text", "letter", "number"
_KINDS = (_TEXT, _LETTER, _NUMBER)
_UNAMBIGUOUS = {_LETTER: "by number, from 0", _NUMBER: "by letter, from A"}


def resolve_answers(jobs: Sequence[Mapping[str, Any]], *, path: Path) -> list[str | None]:
    """Resolve each job's answer to one of its choices.

    If a notation fits all answers, it is used for all: in a column of numbers, `2` is a number even if a choice is
    called 2.

    Args:
        jobs: Each with `job_id`, `choices`, and `answer` as in the table; None if it is unknown.
        path: The table.

    Raises:
        ManifestError: An answer refers to no choice, or to two.
    """
    found = [None if job["answer"] is None else _named(job, path) for job in jobs]
    fitting = [kind for kind in _KINDS if all(kind in named for named in found if named is not None)]
    return [
        None
        if named is None
        else _unique(job, {kind: named[kind] for kind in fitting or _KINDS if kind in named}, path)
        for job, named in zip(jobs, found, strict=True)
    ]


def _named(job: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Return the choice that an answer refers to in each notation that it may be written in."""
    text, choices = job["answer"], job["choices"]
    # The upper case of some letters has two characters, such as that of the German sharp s.
    letter = ascii_uppercase.find(text.upper()) if len(text) == 1 else -1
    number = int(text) if text.isdecimal() else -1
    named = {kind: choices[at] for kind, at in ((_LETTER, letter), (_NUMBER, number)) if 0 <= at < len(choices)}
    for spelling in (strip_letter(text), text):
        if spelling in choices:
            named[_TEXT] = spelling
    if not named:
        raise ManifestError(
            f"{path}, {job['job_id']}: the answer {text!r} is not a choice, or the letter or number (from 0) of one."
        )
    return named


def _unique(job: Mapping[str, Any], named: Mapping[str, str], path: Path) -> str:
    if len(set(named.values())) == 1:
        return next(iter(named.values()))
    kind = _LETTER if _LETTER in named else _NUMBER
    raise ManifestError(
        f"{path}, {job['job_id']}: the answer {job['answer']!r} is ambiguous: it is a choice, and the {kind} of "
        f"another, {named[kind]!r}; give all answers {_UNAMBIGUOUS[kind]}."
    )


_NUMBERS = ("start_s", "end_s")
_JOINER = "+"


def read_mapped(source: BenchmarkFiles) -> pl.DataFrame:
    """Read a CSV file as mapped by `source.columns`.

    A manifest column maps to one column of the file, or to several joined by `+`. Those of `choices` have one
    choice each (a single one has all of them, separated by bars); the values of others are joined with `_`. Answers
    may be the texts, letters, or numbers (from 0) of choices, whichever fits them all.

    Raises:
        ManifestError: A column is missing on either side, or a value cannot be parsed.
    """
    columns = source.columns or {}
    unknown = sorted(columns.keys() - COLUMNS.keys())
    if unknown:
        raise ManifestError(f"Unknown manifest columns: {', '.join(unknown)}; a manifest has {', '.join(COLUMNS)}.")
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise ManifestError(f"No columns of {source.path} are mapped to {', '.join(missing)}; add {missing[0]}=COLUMN.")
    try:
        table = pl.read_csv(source.path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ManifestError(f"Cannot read {source.path} as CSV: {error}") from None
    parts = {name: theirs.split(_JOINER) for name, theirs in columns.items()}
    require_columns(
        source.path, table.columns, [each for names in parts.values() for each in names], layout="this mapping"
    )
    places = source.mapped()
    rows = [_job(row, source, parts, places) for row in table.iter_rows(named=True)]
    if "answer" in parts:
        rows = [
            row | {"answer": answer} for row, answer in zip(rows, resolve_answers(rows, path=source.path), strict=True)
        ]
    return pl.DataFrame(rows, schema={name: COLUMNS[name] for name in columns})


def _job(
    row: dict[str, str | None], source: BenchmarkFiles, parts: dict[str, list[str]], places: dict[str, str]
) -> dict[str, Any]:
    job: dict[str, Any] = {name: _joined(row, names) for name, names in parts.items()}
    where = f"{source.path}, {job['job_id']}"
    video = job["video_uri"] or ""
    job["video_uri"] = source.uri_of(places.get(video, video))
    job["choices"] = _choices(row, parts["choices"], where=where)
    for name in _NUMBERS:
        if job.get(name) is not None:
            job[name] = _number(job[name], name, where=where)
    return job


def _joined(row: dict[str, str | None], names: list[str]) -> str | None:
    texts = [text for name in names if (text := row[name])]
    return "_".join(texts) if texts else None


def _choices(row: dict[str, str | None], names: list[str], *, where: str) -> list[str]:
    texts = [row[name] or "" for name in names]
    while texts and not texts[-1].strip():
        texts.pop()
    for name, text in zip(names, texts, strict=False):
        if not text.strip():
            # Skipping it would shift the letters and numbers of the choices after it.
            raise ManifestError(f"{where}: column {name} is empty, but a later choice is not; fill it in.")
    if len(names) == 1 and texts:
        texts = [part.strip() for part in texts[0].split("|")]
    return strip_letters(texts)


def _number(text: str, name: str, *, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ManifestError(f"{where}: {name} {text!r} is not a number.") from None
