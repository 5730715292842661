"""Any CSV, by a mapping from the manifest's columns to the file's."""

from __future__ import annotations

from functools import partial
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from reelabel.text import quoted
from tasks.manifest.cells import parse_list, parse_seconds
from tasks.manifest.csv_rows import has_decimal_commas, read_header, read_rows
from tasks.manifest.import_csv import require_one_video
from tasks.manifest.layouts.source import merge_repeated, require_columns, strip_letter, strip_letters
from tasks.manifest.rejects import ImportedRows
from tasks.manifest.schema import REQUIRED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tasks.manifest.layouts.source import BenchmarkFiles

_TEXT, _LETTER, _NUMBER = "text", "letter", "number"
_KINDS = (_TEXT, _LETTER, _NUMBER)
_UNAMBIGUOUS = {_LETTER: "by number, from 0", _NUMBER: "by letter, from A"}


def _named(text: str, choices: Sequence[str]) -> dict[str, str]:
    """Return the choice that an answer refers to in each notation that it may be written in."""
    # The upper case of some letters has two characters, such as that of the German sharp s.
    letter = ascii_uppercase.find(text.upper()) if len(text) == 1 else -1
    number = int(text) if text.isdecimal() else -1
    named = {kind: choices[at] for kind, at in ((_LETTER, letter), (_NUMBER, number)) if 0 <= at < len(choices)}
    for spelling in (strip_letter(text), text):
        if spelling in choices:
            named[_TEXT] = spelling
    if not named:
        raise ValueError(f"the answer {quoted(text)} is not a choice, or the letter or number (from 0) of one")
    return named


def _resolved(job: dict[str, Any], notations: Sequence[str]) -> dict[str, Any]:
    """Replace what an answer may mean by the choice that it means in the notations that fit all answers.

    In a column of numbers, `2` is a number even if a choice is called 2.
    """
    answer: str | None = None
    if job.get("answer") is not None:
        text, possible = job["answer"]
        named = {kind: possible[kind] for kind in notations or _KINDS if kind in possible}
        answer = next(iter(named.values()))
        if len(set(named.values())) > 1:
            kind = _LETTER if _LETTER in named else _NUMBER
            raise ValueError(
                f"the answer {quoted(text)} is ambiguous: it is a choice, and the {kind} of another, "
                f"{quoted(named[kind])}; give all answers {_UNAMBIGUOUS[kind]}"
            )
    return job | {"answer": answer, "choices": merge_repeated(job["choices"], answer)}


_TIMES = ("start_s", "end_s")
_JOINER = "+"


def read_mapped(source: BenchmarkFiles) -> ImportedRows:
    """Read a CSV file as mapped by `source.columns`.

    A manifest column maps to one column of the file, or to several joined by `+`. Those of `choices` have one
    choice each (a single one has all of them, separated by bars or as a JSON list); the values of others are joined
    with `_`. Answers may be the texts, letters, or numbers (from 0) of choices, whichever fits them all.

    Raises:
        ManifestError: A column is missing on either side.
    """
    columns = source.columns or {}
    require_one_video(columns)
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise ManifestError(f"No columns of {source.path} are mapped to {', '.join(missing)}; add {missing[0]}=COLUMN.")
    parts = {name: theirs.split(_JOINER) for name, theirs in columns.items()}
    needed = [each for names in parts.values() for each in names]
    require_columns(source.path, read_header(source.path), needed, layout="this mapping")
    places = source.mapped()
    found, decimal_comma = ImportedRows(source=source.path, columns=tuple(columns)), has_decimal_commas(source.path)
    for place, cells in read_rows(source.path, found):
        read = partial(_job, cells, source, parts, places, decimal_comma=decimal_comma)
        found.add(place, read, job_id=_joined(cells, parts["job_id"]), given=cells)
    if "answer" in parts:
        jobs, at = found.rows, found.places
        found.rows, found.places = [], []
        notations = _common_notations(jobs)
        for place, job in zip(at, jobs, strict=True):
            found.add(place, partial(_resolved, job, notations), job_id=job["job_id"], given=job)
    return found


def _common_notations(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the notations that fit all answers."""
    possible = [job["answer"][1] for job in jobs if job["answer"] is not None]
    return [kind for kind in _KINDS if all(kind in named for named in possible)]


def _job(
    cells: dict[str, str],
    source: BenchmarkFiles,
    parts: dict[str, list[str]],
    places: dict[str, str],
    *,
    decimal_comma: bool,
) -> dict[str, Any]:
    job: dict[str, Any] = {name: _joined(cells, names) for name, names in parts.items()}
    video = job["video_uri"] or ""
    job["video_uri"] = source.uri_of(places.get(video, video))
    job["choices"] = _choices(cells, parts["choices"])
    for name in _TIMES:
        if job.get(name) is not None:
            job[name] = parse_seconds(job[name], name, decimal_comma=decimal_comma)
    if job.get("answer") is not None:
        job["answer"] = job["answer"], _named(job["answer"], job["choices"])
    return job


def _joined(cells: dict[str, str], names: list[str]) -> str | None:
    texts = [text for name in names if (text := cells[name])]
    return "_".join(texts) if texts else None


def _choices(cells: dict[str, str], names: list[str]) -> list[str]:
    texts = [cells[name] for name in names]
    while texts and not texts[-1].strip():
        texts.pop()
    for name, text in zip(names, texts, strict=False):
        if not text.strip():
            # Skipping it would shift the letters and numbers of the choices after it.
            raise ValueError(f"column {name} is empty, but a later choice is not; fill it in")
    if len(names) == 1 and texts:
        texts = parse_list(texts[0], names[0])
    return strip_letters(texts)
