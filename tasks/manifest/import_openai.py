"""Manifests from OpenAI-batch JSONL."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.messages import is_text, read_messages
from tasks.manifest.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("job_id", "video_uri", "prompt", "choices", "system_prompt")
_CHOICE_LINE = re.compile(r"^\s*\(?([A-Z])[.):]\s+(.+?)\s*$")


def import_openai_batch(path: Path) -> pl.DataFrame:
    """Read requests of the OpenAI batch format, one a line.

    `custom_id` becomes `job_id`. The messages must hold one `video_url` (or `video`) part and the
    question as text, whose choices stand on lines of their own (`A. red`, `B) green`), or as a list
    under `body.metadata.choices`.

    Raises:
        ManifestError: The file or one of its lines cannot be read; the line is named.
    """
    try:
        # Not splitlines(): JSON text may hold separators that are no line's end, such as U+2028.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"Cannot read {path}: {error}.") from None
    rows = [_line(line, where=f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()]
    return pl.DataFrame(rows, schema={name: COLUMNS[name] for name in _COLUMNS})


def _line(line: str, *, where: str) -> dict[str, Any]:
    try:
        return _row(json.loads(line))
    except json.JSONDecodeError as error:
        raise ManifestError(f"{where}: it is not JSON ({error.msg} at character {error.colno}).") from None
    except KeyError as error:
        raise ManifestError(f"{where}: {error} is missing.") from None
    except (TypeError, AttributeError):
        raise ManifestError(f"{where}: it is not a request of the OpenAI batch format.") from None
    except RecursionError:
        raise ManifestError(f"{where}: its JSON is nested too deeply.") from None
    except ValueError as error:
        raise ManifestError(f"{where}: {error}.") from None


def _row(request: dict[str, Any]) -> dict[str, Any]:
    body = request["body"]
    asked = read_messages(body["messages"])
    given = (body.get("metadata") or {}).get("choices")
    prompt, choices = (asked.prompt, _given(given)) if given else _split(asked.prompt)
    if not choices:
        raise ValueError("no choices; write them as lines 'A. text', or as metadata.choices")
    job_id = str(request["custom_id"])
    if not all(map(is_text, [job_id, *choices])):
        raise ValueError("half of a surrogate pair, which is no character")
    return {
        "job_id": job_id,
        "video_uri": asked.video_uri,
        "prompt": prompt,
        "choices": choices,
        "system_prompt": asked.system_prompt,
    }


def _given(choices: str | list[str]) -> list[str]:
    # The batch format's metadata holds text alone, so that a list is often written as JSON in it.
    values = json.loads(choices) if isinstance(choices, str) else choices
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"metadata.choices {choices!r} is not a list of texts")
    return values


def _split(text: str) -> tuple[str, list[str]]:
    """Part a question from its choices; instructions after the last choice are dropped."""
    prompt: list[str] = []
    choices: list[str] = []
    for line in text.splitlines():
        found = _CHOICE_LINE.match(line)
        if found and ord(found[1]) - ord("A") == len(choices):
            choices.append(found[2])
        elif not choices:
            prompt.append(line)
    return "\n".join(prompt).strip(), choices
