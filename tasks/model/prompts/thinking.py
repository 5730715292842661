"""Finds out whether a chat template makes the model think first, so that its first token is no answer."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from reelabel_engine.errors import ModelError
from reelabel_engine.prompts import chat_messages
from tasks.model.identity import ModelInfo, model_file

if TYPE_CHECKING:
    from collections.abc import Mapping


QUESTION = "Is it 1 or 2?"  # no template contains it
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
_WORDS = "think|thinking|thought|thoughts|reason|reasoning|reflection|scratchpad"
# <think>, <|thinking|>, <seed:think>, [THINK] and the like; with a slash, it ends.
_TAG = re.compile(rf"[<\[◁]\|?(?P<ends>/?)(?:\w+:)?(?:{_WORDS})\|?[>\]▷]", re.IGNORECASE)


def find_open_tag(text: str) -> str | None:
    """Return the last tag of a prompt if it begins a thought; None otherwise."""
    tags = list(_TAG.finditer(text))
    return tags[-1].group() if tags and not tags[-1]["ends"] else None


def require_answer_first(name: str, ending: str | None) -> None:
    """Raise a ModelError if, after the end of a prompt, a model's first token belongs to a thought."""
    if ending and (tag := find_open_tag(ending)):
        raise ModelError(
            f"The chat template of {name} ends the prompt with {tag}, so that the model thinks before it answers, and "
            "its first token is no answer; set model.chat_template_args, such as enable_thinking = false, or use a "
            "variant that does not think."
        )


def render_ending(model_info: ModelInfo, arguments: Mapping[str, Any]) -> str | None:
    """Return what a model's chat template puts after the question; None if it cannot be rendered here."""
    template = _read_template(model_info)
    if template is None:
        return None
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now(UTC).strftime(form)
    for placeholders in (None, [""]):  # templates take content parts, or texts
        messages = chat_messages(QUESTION, None, placeholders=placeholders)
        try:
            rendered = environment.from_string(template).render(
                **{"messages": messages, "add_generation_prompt": True, **arguments}
            )
        except Exception:  # noqa: BLE001, S112 - a template may raise anything; the engine reports it
            continue
        _, question, ending = rendered.rpartition(QUESTION)
        if question:
            return ending
    return None


def _read_template(model_info: ModelInfo) -> str | None:
    for name in _TEMPLATE_FILES:
        with suppress(Exception):  # the hub client raises those of its HTTP library; the engine will report it
            text = model_file(model_info, name).read_text(encoding="utf-8")
            template = text if name.endswith(".jinja") else json.loads(text).get("chat_template")
            if isinstance(template, str):
                return template
    return None


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
