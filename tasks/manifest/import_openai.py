"""Manifests from OpenAI-batch JSONL."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from infra.errors import ManifestError
from tasks.manifest.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

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
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"Cannot read {path}: {error}.") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append(_row(json.loads(line)))
            except (KeyError, TypeError, ValueError) as error:
                raise ManifestError(f"{path}, line {number}: {_reason(error)}.") from None
    names = ("job_id", "video_uri", "prompt", "choices", "system_prompt")
    return pl.DataFrame(rows, schema={name: COLUMNS[name] for name in names})


def _row(request: dict[str, Any]) -> dict[str, Any]:
    body = request["body"]
    system: list[str] = []
    texts: list[str] = []
    videos: list[str] = []
    for message in body["messages"]:
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part["type"] == "text":
                (system if message["role"] == "system" else texts).append(part["text"])
            elif part["type"] in {"video_url", "video"}:
                value = part[part["type"]]
                videos.append(value["url"] if isinstance(value, dict) else value)
    if len(videos) != 1:
        raise ValueError(f"{len(videos)} videos in one request; give one")
    prompt, choices = _split("\n".join(texts))
    given = (body.get("metadata") or {}).get("choices")
    if given:
        prompt, choices = "\n".join(texts), json.loads(given) if isinstance(given, str) else list(given)
    if not choices:
        raise ValueError("no choices; write them as lines 'A. text', or as metadata.choices")
    return {
        "job_id": request["custom_id"],
        "video_uri": videos[0],
        "prompt": prompt,
        "choices": choices,
        "system_prompt": "\n".join(system) or None,
    }


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


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
