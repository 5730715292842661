"""What a benchmark's files are read from, and what all readers share."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from infra.uri import scheme_of
from tasks.manifest.messages import is_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LETTERED = re.compile(r"^\(?([A-Z])[.):]\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A benchmark on disk.

    Attributes:
        path: Its questions: a file, or a folder of such.
        videos: Folder or URI below which its videos stand.
        video_map: JSON file from a video's name in the questions to its place below `videos`, where there is one.
        columns: From a manifest's columns to those of a table, where the user named them.
    """

    path: Path
    videos: str = ""
    video_map: Path | None = None
    columns: dict[str, str] | None = None

    def uri_of(self, place: str) -> str:
        """Give a video's URI by its place below `videos`; a URI or an absolute path stays as it is."""
        is_whole = scheme_of(place) is not None or Path(place).is_absolute()
        return place if is_whole or not self.videos else f"{self.videos.rstrip('/')}/{place}"

    def mapped(self) -> dict[str, str]:
        """Read the map of videos; empty where there is none.

        Raises:
            ManifestError: It is no JSON object of texts.
        """
        if self.video_map is None:
            return {}
        found = read_json(self.video_map)
        if not isinstance(found, dict) or not all(map(_is_text, found.values())):
            raise ManifestError(f"{self.video_map} must hold a JSON object from a video's name to its place.")
        return found


def read_json(path: Path) -> Any:  # noqa: ANN401 - any JSON value
    """Read a JSON file.

    Raises:
        ManifestError: It cannot be read.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except RecursionError:
        raise ManifestError(f"Cannot read {path} as JSON: it is nested too deeply.") from None
    except (OSError, ValueError) as error:
        raise ManifestError(f"Cannot read {path} as JSON: {error}.") from None


def require_columns(path: Path, found: Iterable[str], wanted: Iterable[str], *, layout: str) -> None:
    """Refuse a file that is not of a layout.

    Raises:
        ManifestError: Columns are missing; they are named.
    """
    names = list(found)
    missing = [name for name in wanted if name not in names]
    if missing:
        held = ", ".join(names) or "nothing"
        raise ManifestError(f"{path} lacks {', '.join(missing)}, so it is no file of {layout}; it holds {held}.")


def require_texts(values: Mapping[str, object], *, where: str) -> None:
    """Refuse what JSON holds instead of text.

    Raises:
        ManifestError: A value is no text; it is named.
    """
    for name, value in values.items():
        if not _is_text(value):
            raise ManifestError(f"{where}: {name} {value!r} is no text.")


def strip_letters(choices: Sequence[str]) -> list[str]:
    """Take `A. `, `(B) ` and the like off choices, where all bear one in the alphabet's order."""
    # Other letters belong to the choices, as in `U.S.` and `J. Smith`.
    found = [match[1] for choice in choices if (match := _LETTERED.match(choice))]
    return [strip_letter(choice) for choice in choices] if found == [*ascii_uppercase[: len(choices)]] else [*choices]


def strip_letter(text: str) -> str:
    """Take `A. `, `(B) ` or the like off a text."""
    return _LETTERED.sub("", text)


def choice_at(choices: Sequence[str], number: int, *, where: str) -> str:
    """Give the answer by its position.

    Raises:
        ManifestError: There is no such choice.
    """
    if not 0 <= number < len(choices):
        raise ManifestError(f"{where}: answer {number} is none of its {len(choices)} choices, counted from 0.")
    return choices[number]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and is_text(value)
