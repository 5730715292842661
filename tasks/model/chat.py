"""From a question to vLLM's prompt, by the model's own chat template; asks vLLM which one and what it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.exceptions import VLLMValidationError
from vllm.model_executor.model_loader import get_model_cls
from vllm.renderers.chat_utils import ChatTemplateResolutionError
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template

from infra.errors import InferenceError
from tasks.model.families import fit_video
from tasks.model.prompt import chat_messages

if TYPE_CHECKING:
    from tasks.model.families import Video
    from tasks.model.questions import Question


def engine_prompt(
    renderer: Any,  # noqa: ANN401
    question: Question,
    video: Video,
    *,
    video_hash: str,
) -> dict[str, Any]:
    """Render a question as `LLM.chat` would, beside its video.

    Args:
        renderer: vLLM's, of the model.
        question: What is asked.
        video: Frames and metadata, as `tasks.model.video_input` lays them out.
        video_hash: Names these very frames: vLLM takes what it has under that name for theirs.

    Returns:
        A prompt of vLLM's with its text and tokens. The template writes its special tokens itself, so that
        the tokenizer adds none.

    Raises:
        InferenceError: The model has no chat template, or that refuses the question.
    """
    tokenizer = renderer.get_tokenizer()
    messages = chat_messages(question.text, question.system_prompt, placeholder=_placeholder(renderer))
    try:
        chat = safe_apply_chat_template(
            renderer.model_config, tokenizer, messages, tokenize=False, add_generation_prompt=True
        )
    except ChatTemplateResolutionError:
        raise InferenceError("The model has no chat template; add its chat_template.jinja to its folder.") from None
    except VLLMValidationError as error:
        raise InferenceError(f"The model's chat template refuses the question: {error}") from None
    return {
        "prompt": chat,
        "prompt_token_ids": tokenizer.encode(chat, add_special_tokens=False),
        "multi_modal_data": {"video": [fit_video(video, renderer.model_config.hf_config)]},
        "multi_modal_uuids": {"video": [video_hash]},
    }


def _placeholder(renderer: Any) -> str | None:  # noqa: ANN401
    """Name what stands for a video in the text, where a template takes no parts; None where it does."""
    config = renderer.model_config
    kind = resolve_chat_template_content_format(None, None, "auto", renderer.get_tokenizer(), model_config=config)
    return None if kind == "openai" else get_model_cls(config).get_placeholder_str("video", 1)
