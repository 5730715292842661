"""Turn a question into a prompt with the model's chat template, which vLLM selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.model_executor.model_loader import get_model_cls
from vllm.renderers.chat_utils import ChatTemplateResolutionError
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template

from infra.errors import InferenceError
from tasks.model.prompt import chat_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat:
    """A question and the placeholder of its video, as text and as tokens."""

    text: str
    token_ids: tuple[int, ...]


def apply_chat_template(renderer: Any, text: str, system_prompt: str | None) -> RenderedChat:  # noqa: ANN401
    """Apply the model's chat template as `LLM.chat` does.

    The template writes special tokens itself, so the tokenizer adds none.

    Args:
        renderer: vLLM's renderer for the model.
        text: The question with its choices.
        system_prompt: None leaves it to the chat template.

    Raises:
        InferenceError: The model has no chat template, or the template rejects the question.
    """
    tokenizer = renderer.get_tokenizer()
    messages = chat_messages(text, system_prompt, placeholder=_placeholder(renderer))
    try:
        chat = safe_apply_chat_template(
            renderer.model_config, tokenizer, messages, tokenize=False, add_generation_prompt=True
        )
    except ChatTemplateResolutionError:
        raise InferenceError("The model has no chat template; add a chat_template.jinja to its folder.") from None
    except VLLMValidationError as error:
        raise InferenceError(f"The model's chat template rejects the question: {error}") from None
    return RenderedChat(text=chat, token_ids=tuple(tokenizer.encode(chat, add_special_tokens=False)))


def _placeholder(renderer: Any) -> str | None:  # noqa: ANN401
    """Return the video placeholder for a template that takes plain text; None for one that takes content parts."""
    config = renderer.model_config
    content_format = resolve_chat_template_content_format(
        None, None, "auto", renderer.get_tokenizer(), model_config=config
    )
    return None if content_format == "openai" else get_model_cls(config).get_placeholder_str("video", 1)
