"""Manifests from JSONL in the OpenAI batch format."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from reelabel.integrations.chat_messages import is_valid_unicode, parse_messages
from tasks.manifest.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("job_id", "video_uri", "prompt", "choices", "system_prompt")
_CHOICE_LINE = re.compile(r"^\s*\(?([A-Z])[.):]\s+(.+?)\s*$")


def import_openai_batch(path: Path) -> pl.DataFrame:
    """Read requests in the OpenAI batch format, one per line.

    `custom_id` becomes `job_id`. The messages must contain one `video_url` (or `video`) part and the
    question as text, with its choices on lines of their own (`A. red`, `B) green`), or as a list
    in `body.metadata.choices`.

    Raises:
        ManifestError: The file or a line cannot be parsed; the message gives the line.
    """
    try:
        # Not splitlines(): JSON strings may contain other line separators, such as U+2028.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"Cannot read {path}: {error}.") from None
    rows = [_line(line, where=f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()]
    return pl.DataFrame(rows, schema={name: COLUMNS[name] for name in _COLUMNS})


def _line(line: str, *, where: str) -> dict[str, Any]:
    try:
        return _row(json.loads(line))
    except json.JSONDecodeError as error:
        raise ManifestError(f"{where}: not JSON ({error.msg} at character {error.colno}).") from None
    except KeyError as error:
        raise ManifestError(f"{where}: {error} is missing.") from None
    except (TypeError, AttributeError):
        raise ManifestError(f"{where}: not a request in the OpenAI batch format.") from None
    except RecursionError:
        raise ManifestError(f"{where}: the JSON is nested too deeply.") from None
    except ValueError as error:
        raise ManifestError(f"{where}: {error}.") from None


def _row(request: dict[str, Any]) -> dict[str, Any]:
    body = request["body"]
    question = parse_messages(body["messages"])
    raw_choices = (body.get("metadata") or {}).get("choices")
    prompt, choices = (question.prompt, _parse_choices(raw_choices)) if raw_choices else _split(question.prompt)
    if not choices:
        raise ValueError("no choices; write them as lines 'A. text', or in metadata.choices")
    job_id = str(request["custom_id"])
    if not all(map(is_valid_unicode, [job_id, *choices])):
        raise ValueError("custom_id or a choice contains an unpaired surrogate, which is not a valid character")
    return {
        "job_id": job_id,
        "video_uri": question.video_uri,
        "prompt": prompt,
        "choices": choices,
        "system_prompt": question.system_prompt,
    }


def _parse_choices(choices: str | list[str]) -> list[str]:
    # Metadata values must be strings in the batch format, so the list is often encoded as JSON.
    values = json.loads(choices) if isinstance(choices, str) else choices
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"metadata.choices {choices!r} is not a list of strings")
    return values


def _split(text: str) -> tuple[str, list[str]]:
    """Separate a question from its choices; instructions after the last choice are dropped."""
    prompt: list[str] = []
    choices: list[str] = []
    for line in text.splitlines():
        found = _CHOICE_LINE.match(line)
        if found and ord(found[1]) - ord("A") == len(choices):
            choices.append(found[2])
        elif not choices:
            prompt.append(line)
    return "\n".join(prompt).strip(), choices
