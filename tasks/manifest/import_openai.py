"""Manifests from JSONL in the OpenAI batch format."""

from __future__ import annotations

import json
import re
from functools import partial
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from reelabel.integrations.chat_messages import is_valid_unicode, parse_messages
from reelabel.text import quoted, read_error
from tasks.manifest.imported import ImportedRows

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("job_id", "video_uri", "prompt", "choices", "system_prompt")
_CHOICE_LINE = re.compile(r"^\s*\(?([A-Z])[.):]\s+(.+?)\s*$")
_LONGEST_GIVEN = 4_000


def import_openai_batch(path: Path) -> ImportedRows:
    """Read requests in the OpenAI batch format, one per line.

    `custom_id` becomes `job_id`. The messages must contain a `video_url` (or `video`) part and the question as text.
    With several videos, or with images, the column `messages` holds them, followed by the question. Its choices are
    the first of these that the request has: the list in `body.metadata.choices`; vLLM's list in
    `body.structured_outputs.choice`; lines of the text such as `A. red` or `B) green`, which are then removed from
    the question. If the list has only the letters of such lines, the choices are the lines' texts.
    """
    try:
        # Not splitlines(): JSON strings may contain other line separators, such as U+2028.
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"Cannot read {path}: {read_error(error)}.") from None
    found = ImportedRows(source=path, columns=_COLUMNS)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.add(f"line {number}", partial(_line, line), job_id=_job_id(line), given=line[:_LONGEST_GIVEN])
    if any("messages" in row for row in found.rows):
        found.columns = (*_COLUMNS, "messages")
    return found


def _job_id(line: str) -> object:
    try:
        return json.loads(line)["custom_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _line(line: str) -> dict[str, Any]:
    try:
        return _row(json.loads(line))
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.colno})") from None
    except KeyError as error:
        raise ValueError(f"{error} is missing from the request, which must be one of the OpenAI batch format") from None
    except (TypeError, AttributeError):
        raise ValueError("not a request in the OpenAI batch format") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _row(request: dict[str, Any]) -> dict[str, Any]:
    body = request["body"]
    question = parse_messages(body["messages"])
    prompt, choices = _question(question.prompt, _listed_choices(body))
    if not choices:
        raise ValueError(
            "no choices; write them as lines 'A. text', or as a list in metadata.choices or structured_outputs.choice"
        )
    job_id = str(request["custom_id"])
    if not all(map(is_valid_unicode, [job_id, *choices])):
        raise ValueError("custom_id or a choice contains an unpaired surrogate, which is not a valid character")
    row = {"job_id": job_id, "choices": choices, "system_prompt": question.system_prompt}
    if len(question.media) > 1:
        parts = [{"type": f"{kind}_url", f"{kind}_url": {"url": uri}} for kind, uri in question.media]
        content = [*parts, {"type": "text", "text": prompt}]
        return row | {"messages": json.dumps([{"role": "user", "content": content}], ensure_ascii=False)}
    return row | {"video_uri": question.videos[0], "prompt": prompt}


def _listed_choices(body: dict[str, Any]) -> list[str]:
    for group, name in (("metadata", "choices"), ("structured_outputs", "choice")):
        listed = (body.get(group) or {}).get(name)
        if listed:
            return _parse_choices(listed, f"{group}.{name}")
    return []


def _parse_choices(choices: str | list[str], name: str) -> list[str]:
    # Metadata values must be strings in the batch format, so the list is often encoded as JSON.
    try:
        values = json.loads(choices) if isinstance(choices, str) else choices
    except json.JSONDecodeError:
        values = None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} {quoted(choices)} is not a list of strings")
    return values


def _question(text: str, listed: list[str]) -> tuple[str, list[str]]:
    prompt, lines = _split(text)
    stands_for_lines = len(lines) > 1 and listed == [*ascii_uppercase[: len(lines)]]
    return (text, listed) if listed and not stands_for_lines else (prompt, lines)


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
