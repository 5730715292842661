"""Resolve a table's answers to choices: by text, by letter, or by number from 0."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from tasks.manifest.layouts.source import strip_letter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

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
