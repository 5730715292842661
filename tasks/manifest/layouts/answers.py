"""Which choices a table's answers name: by their texts, their letters, or their numbers from 0."""

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
_WAY_OUT = {_LETTER: "by number, from 0", _NUMBER: "by letter, from A"}


def answers_of(jobs: Sequence[Mapping[str, Any]], *, path: Path) -> list[str | None]:
    """Give the choice that each job's answer names.

    Where one kind fits all answers, all are of it: in a column of numbers, `2` is no choice that is called 2.

    Args:
        jobs: With their `job_id`, `choices`, and `answer` as the table has it; None where it is not known.
        path: The table.

    Raises:
        ManifestError: An answer names no choice, or two.
    """
    found = [None if job["answer"] is None else _named(job, path) for job in jobs]
    fitting = [kind for kind in _KINDS if all(kind in named for named in found if named is not None)]
    return [
        None if named is None else _one(job, {kind: named[kind] for kind in fitting or _KINDS if kind in named}, path)
        for job, named in zip(jobs, found, strict=True)
    ]


def _named(job: Mapping[str, Any], path: Path) -> dict[str, str]:
    """Give the choice that an answer names by each kind that it can be of."""
    text, choices = job["answer"], job["choices"]
    # Few letters have an upper case of two, such as the German sharp s.
    letter = ascii_uppercase.find(text.upper()) if len(text) == 1 else -1
    number = int(text) if text.isdecimal() else -1
    named = {kind: choices[at] for kind, at in ((_LETTER, letter), (_NUMBER, number)) if 0 <= at < len(choices)}
    for spelt in (strip_letter(text), text):
        if spelt in choices:
            named[_TEXT] = spelt
    if not named:
        raise ManifestError(
            f"{path}, {job['job_id']}: the answer {text!r} is no choice, and no choice's letter or number from 0."
        )
    return named


def _one(job: Mapping[str, Any], named: Mapping[str, str], path: Path) -> str:
    if len(set(named.values())) == 1:
        return next(iter(named.values()))
    kind = _LETTER if _LETTER in named else _NUMBER
    raise ManifestError(
        f"{path}, {job['job_id']}: the answer {job['answer']!r} is a choice, and the {kind} of another, "
        f"{named[kind]!r}; give all answers {_WAY_OUT[kind]}."
    )
