"""Import from JSONL in OpenAI's batch format."""

from __future__ import annotations

import json
import re
from functools import partial
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from infra.errors import ManifestError
from infra.text_bounds import MAX_OUTPUT_TOKENS
from reelabel.integrations.chat_messages import parse_messages
from reelabel.text import pluralize, quoted, read_error
from tasks.domain.spec import DEFAULT_MAX_TOKENS
from tasks.manifest.importers.imported import ImportedRows

if TYPE_CHECKING:
    from pathlib import Path

_COLUMNS = ("job_id", "video_uri", "prompt", "choices", "system_prompt")
_OF_SOME = ("schema", "messages")
_CHOICE_LINE = re.compile(r"^\s*\(?([A-Z])[.):]\s+(.+?)\s*$")
_LONGEST_GIVEN = 4_000


def import_openai_batch(path: Path) -> ImportedRows:
    """Read requests in OpenAI's batch format, one per line.

    `custom_id` becomes `job_id`. The messages must contain a `video_url` (or `video`) part and the question as text.
    With several videos, or with images, the column `messages` holds them, followed by the question. The choices are the
    first of these that a request has: the list in `body.metadata.choices`; vLLM's list in
    `body.structured_outputs.choice` or `body.guided_choice`; lines of the text such as `A. red` or `B) green`, which
    are then removed from the question. If the list has only the letters of such lines, the choices are the lines'
    texts. A request without choices is answered in words, or by the schema in its `response_format`, or in vLLM's
    `structured_outputs.json` or `guided_json`.
    """
    try:
        # Not splitlines(): JSON strings may contain other line separators, such as U+2028.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"Cannot read {path}: {read_error(error)}.") from None
    found, bounds = ImportedRows(source=path, columns=_COLUMNS), list[int]()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            found.add(f"line {number}", partial(_line, line, bounds), job_id=_job_id(line), given=line[:_LONGEST_GIVEN])
    found.columns = (*_COLUMNS, *(name for name in _OF_SOME if any(name in row for row in found.rows)))
    if words := sum(row["choices"] is None for row in found.rows):
        bound = f", of at most {DEFAULT_MAX_TOKENS} tokens each unless the run has another --max-tokens"
        if bounds:
            bound = f"; run with --max-tokens {min(max(bounds), MAX_OUTPUT_TOKENS)}, their greatest max_tokens"
        found.notes.append(f"{pluralize(words, 'request')} without choices will be answered in words{bound}.")
    return found


def _job_id(line: str) -> object:
    try:
        return json.loads(line)["custom_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _line(line: str, bounds: list[int]) -> dict[str, Any]:
    try:
        return _row(json.loads(line), bounds)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON ({error.msg} at character {error.colno})") from None
    except KeyError as error:
        raise ValueError(f"{error} is missing from the request, which must be one of the OpenAI batch format") from None
    except (TypeError, AttributeError):
        raise ValueError("not a request in the OpenAI batch format") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None


def _row(request: dict[str, Any], bounds: list[int]) -> dict[str, Any]:
    body = request["body"]
    question, listed = parse_messages(body["messages"]), _listed_choices(body)
    schema = None if listed else _schema(body)
    prompt, choices = (question.prompt, []) if schema else _question(question.prompt, listed)
    custom_id = request["custom_id"]
    if not isinstance(custom_id, str | int):
        raise ValueError(f"custom_id {quoted(custom_id)} is not a string")  # noqa: TRY004 - a fault of the data
    row = {"job_id": str(custom_id), "choices": choices or None, "system_prompt": question.system_prompt}
    row |= {"schema": schema} if schema else {}
    if not (choices or schema) and (unread := _constraints(body)):
        name, value = min(unread.items())
        raise ValueError(f"{name} {quoted(str(value))} is neither choices nor a JSON schema; give one of them")
    if not choices:
        bounds += _bounds(body)
    if len(question.media) > 1:
        parts = [{"type": f"{kind}_url", f"{kind}_url": {"url": uri}} for kind, uri in question.media]
        content = [*parts, {"type": "text", "text": prompt}]
        return row | {"messages": json.dumps([{"role": "user", "content": content}], ensure_ascii=False)}
    return row | {"video_uri": question.videos[0], "prompt": prompt}


def _schema(body: dict[str, Any]) -> str | None:
    """Return the JSON schema of an answer as text; None if its words are free.

    Raises:
        ValueError: The request wants another format.
    """
    constraints = _constraints(body)
    for name in ("structured_outputs.json", "guided_json"):
        if (of_vllm := constraints.get(name)) is not None:
            return of_vllm if isinstance(of_vllm, str) else json.dumps(of_vllm, ensure_ascii=False)
    form = body.get("response_format") or {}
    match form.get("type", "text"):
        case "text":
            return None
        case "json_object":
            return json.dumps({"type": "object"})
        case "json_schema":
            return json.dumps(form["json_schema"]["schema"], ensure_ascii=False)
        case other:
            raise ValueError(f"response_format {quoted(str(other))} is none of text, json_object and json_schema")


def _constraints(body: dict[str, Any]) -> dict[str, Any]:
    """Return vLLM's options for the form of an answer, by their current and older names."""
    now = {f"structured_outputs.{name}": value for name, value in (body.get("structured_outputs") or {}).items()}
    before = {name: value for name, value in body.items() if name.startswith("guided_")}
    return {name: value for name, value in (now | before).items() if value is not None}


def _bounds(body: dict[str, Any]) -> list[int]:
    limits = [body[name] for name in ("max_completion_tokens", "max_tokens") if body.get(name) is not None][:1]
    if not all(type(each) is int and each > 0 for each in limits):
        raise ValueError(f"max_tokens {quoted(str(limits[0]))} is no positive number")
    return limits


def _listed_choices(body: dict[str, Any]) -> list[str]:
    sources = {"metadata.choices": (body.get("metadata") or {}).get("choices")} | _constraints(body)
    for name in ("metadata.choices", "structured_outputs.choice", "guided_choice"):
        if listed := sources.get(name):
            return _parse_choices(listed, name)
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
    if listed and not stands_for_lines:
        return text, listed
    return (prompt, lines) if len(lines) > 1 else (text, [])


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
