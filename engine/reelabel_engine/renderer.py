"""Turn frame files and the questions on them into the engine's inputs, in processes beside the engine's."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image

from reelabel.frames.frame_file import read_frames
from reelabel.integrations.vllm.video_input import adapt_video, video_input
from reelabel_engine.arguments import vllm_arguments
from reelabel_engine.errors import InferenceError, PromptTooLongError, SpecialTokensError
from reelabel_engine.live_items import FOOTAGE, FRAMES_PER_PAIR
from reelabel_engine.model_errors import translate_vllm_error
from reelabel_engine.plain_text import TextTokenizer, text_tokenizer
from reelabel_engine.positions import SECONDS, STARTS, last_time, table_length
from reelabel_engine.prompts import ChoiceTokens, chat_messages, choice_tokens
from reelabel_engine.qwen_fast_path import QwenFastPath
from reelabel_engine.vllm_api import (
    ChatTemplateResolutionError,
    EngineArgs,
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    VLLMValidationError,
    get_model_cls,
    renderer_from_config,
    resolve_chat_template_content_format,
    safe_apply_chat_template,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reelabel.integrations.vllm.video_input import Video
    from reelabel_engine.protocol import EngineConfig, LiveQuery, MediumKind, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedChat:
    text: str
    token_ids: tuple[int, ...]


# Separates pieces of a text; random, so that no manifest contains it.
_CUT = secrets.token_hex(16)


def apply_chat_template(
    renderer: Any,  # noqa: ANN401
    plain: TextTokenizer,
    text: str,
    system_prompt: str | None,
    shown: tuple[MediumKind, ...] = ("video",),
    turns: tuple[tuple[str, str], ...] = (),
    *,
    arguments: Mapping[str, Any] = MappingProxyType({}),
) -> RenderedChat:
    """Apply the model's chat template as `LLM.chat` does, to what is shown, earlier turns and a question.

    The template writes special tokens itself, so the tokenizer adds none. Those that a text spells are cut in two
    before the template sees them, and encoded as plain text.

    Raises:
        InferenceError: The model has no chat template, or the template rejects the question.
        SpecialTokensError: The text spells a special token in a way that cannot be encoded as text.
    """
    tokenizer = renderer.get_tokenizer()
    messages = chat_messages(
        _CUT.join(plain.split(text)),
        system_prompt and _CUT.join(plain.split(system_prompt)),
        turns=[(_CUT.join(plain.split(question)), _CUT.join(plain.split(answer))) for question, answer in turns],
        shown=shown,
        placeholders=_placeholders(renderer, shown),
    )
    try:
        chat = safe_apply_chat_template(
            renderer.model_config, tokenizer, messages, tokenize=False, add_generation_prompt=True, **arguments
        )
    except ChatTemplateResolutionError:
        raise InferenceError("The model has no chat template; add a chat_template.jinja to its folder.") from None
    except VLLMValidationError as error:
        raise InferenceError(f"The model's chat template rejects the question: {error}") from None
    pieces = chat.split(_CUT)
    return RenderedChat(text="".join(pieces), token_ids=tuple(chain.from_iterable(map(plain.encode, pieces))))


def _placeholders(renderer: Any, shown: Sequence[MediumKind]) -> list[str] | None:  # noqa: ANN401
    """Return what stands for videos and images in a template that takes text; None for one that takes content parts."""
    config = renderer.model_config
    content_format = resolve_chat_template_content_format(
        None, None, "auto", renderer.get_tokenizer(), model_config=config
    )
    if content_format == "openai":
        return None
    model, counts = get_model_cls(config), Counter[str]()
    placeholders = []
    for kind in shown:
        counts[kind] += 1  # some models number them
        placeholders.append(model.get_placeholder_str(kind, counts[kind]))
    return placeholders


# Room for the current video; the next one evicts it.
_PROCESSOR_CACHE_GB = 0.5
# Most questions are asked about many videos, and share their choices with others.
_CACHED_TEXTS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """A question as the engine takes it: vLLM's `EngineInput`, token ids per choice, and what preparing it took.

    Without choices, it is answered in words; see `Question`.
    """

    prompt: Any = field(repr=False)
    tokens: ChoiceTokens
    preprocess_ms: float
    max_tokens: int = 1
    schema: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HashedMedium:
    """A video or an image that questions show."""

    kind: MediumKind = "video"
    frames: Video = field(repr=False)  # as of `video_input`; one frame of an image
    hash: str  # identifies exactly these frames: vLLM reuses whatever it has cached under this hash
    starts_s: tuple[float, ...] = ()  # of each pair of frames, if it shows what a live session saw; else empty

    @classmethod
    def of(cls, kind: MediumKind, frame_file: bytes) -> HashedMedium:
        """Read a frame file; a damaged one raises a FrameFileError."""
        # The file contains pixels, times and sampling, so its hash covers all of them.
        # A video of one frame, and an image, may have the same file.
        file_hash = blake2b(frame_file, digest_size=16, person=kind.encode()).hexdigest()
        frames = read_frames(frame_file)
        is_footage = kind == "video" and frames.source_uri.endswith(FOOTAGE)
        starts_s = frames.selection.time_s[frames.shown][::FRAMES_PER_PAIR].tolist() if is_footage else ()
        return cls(kind=kind, frames=video_input(frames), hash=file_hash, starts_s=tuple(starts_s))

    def as_images(self) -> list[HashedMedium]:
        frames, metadata = self.frames
        return [
            HashedMedium(kind="image", frames=(frames[at : at + 1], metadata), hash=f"{self.hash}-{at}")
            for at in range(len(frames))
        ]

    def adapted(self, config: Any) -> Any:  # noqa: ANN401 - what vLLM takes; of transformers
        return adapt_video(self.frames, config) if self.kind == "video" else Image.fromarray(self.frames[0][0])


class InputRenderer:
    """vLLM's preprocessing: chat template, tokenizer and processor, without weights."""

    def __init__(self, config: EngineConfig) -> None:
        """Load the tokenizer and the processor; takes seconds."""
        arguments = vllm_arguments(config) | {"mm_processor_cache_gb": _PROCESSOR_CACHE_GB}
        vllm_config = EngineArgs(**arguments).create_engine_config()
        self._renderer = renderer_from_config(vllm_config)
        self.tokenizer = self._renderer.get_tokenizer()
        self.hf_config = self._renderer.model_config.hf_config
        self._plain = text_tokenizer(self.tokenizer)
        self._tokens = lru_cache(_CACHED_TEXTS)(choice_tokens)
        self.render_chat = lru_cache(_CACHED_TEXTS)(
            partial(apply_chat_template, self._renderer, self._plain, arguments=config.chat_template_args)
        )
        self.max_model_len = int(vllm_config.model_config.max_model_len)
        self.positions = table_length(vllm_config.model_config) if vllm_config.model_config.uses_mrope else None
        self._shows_images = config.frames_as_images
        self._shortcut = QwenFastPath(self._renderer, self._render_with_vllm, max_model_len=self.max_model_len)

    def tokens(self, question: Question | LiveQuery) -> ChoiceTokens:
        return self._tokens(question.choices, scoring=question.scoring, encode=self._plain)

    def prompt(self, question: Question, media: Sequence[HashedMedium]) -> dict[str, Any]:
        """Render a question and what it shows, in order, as `LLM.chat` would: a prompt for vLLM."""
        if self._shows_images:
            media = [image for each in media for image in each.as_images()]
        chat = self.render_chat(question.text, question.system_prompt, tuple(each.kind for each in media))
        data: dict[str, list[Any]] = {}
        hashes: dict[str, list[str]] = {}
        for each in media:
            data.setdefault(each.kind, []).append(each.adapted(self.hf_config))
            hashes.setdefault(each.kind, []).append(each.hash)
        return {
            "prompt": chat.text,
            "prompt_token_ids": list(chat.token_ids),
            "multi_modal_data": data,
            "multi_modal_uuids": hashes,
        }

    def render(self, prompt: dict[str, Any], *, starts_s: Sequence[float] = ()) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        """Process a prompt into an input of vLLM's engine.

        Args:
            prompt: As of `prompt`.
            starts_s: When each pair of its only video begins; empty if its frames have a common rate.

        Raises:
            PromptTooLongError: The prompt has more tokens, or spans more positions, than the model takes.
            InferenceError: The model's processor rejects the prompt.
        """
        is_one_video = [*map(len, prompt["multi_modal_data"].values())] == [1] and "video" in prompt["multi_modal_data"]
        rendered = self._shortcut.render(prompt) if is_one_video else None
        if rendered is None:
            rendered = self._render_with_vllm(prompt)
            if is_one_video:
                self._shortcut.learn(prompt, rendered)
        if starts_s and not self._shows_images:
            rendered = _with_starts(rendered, starts_s)
        self._check_positions(rendered)
        return rendered

    def _check_positions(self, rendered: Any) -> None:  # noqa: ANN401 - vLLM's EngineInput
        """Raise if the times of frames take a prompt beyond the rotary table, of which the engine's process would die.

        Without times, a prompt's last position is at most its number of tokens.
        """
        videos = rendered["mm_kwargs"].get("video", ())
        last = len(rendered["prompt_token_ids"]) + sum(last_time(video, self.hf_config) for video in videos)
        if self.positions is not None and not last < self.positions:
            raise PromptTooLongError(
                f"The times of the video's frames take the prompt to position {last:,.0f}, but "
                f"the model's positions end at {self.positions - 1:,}; ask about a segment of the video (start_s, "
                "end_s)."
            )

    def _render_with_vllm(self, prompt: dict[str, Any]) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        try:
            [rendered] = self._renderer.render_cmpl([prompt], skip_mm_cache=True)
        except (ValueError, VLLMValidationError) as error:
            raise translate_vllm_error(error, self.max_model_len) from None
        self._check_special_tokens(prompt, rendered)
        return rendered

    def _check_special_tokens(self, prompt: dict[str, Any], rendered: Any) -> None:  # noqa: ANN401 - vLLM's EngineInput
        """Raise if a text's special tokens are obeyed after all.

        To find a placeholder that is no token of its own, vLLM decodes a prompt, and encodes all of it again.
        """
        ids = prompt["prompt_token_ids"]
        if self._plain.encode(prompt["prompt"]) == ids:  # no text spells any
            return
        outside = list(rendered["prompt_token_ids"])
        placeholders = chain.from_iterable(rendered["mm_placeholders"].values())
        for placeholder in sorted(placeholders, key=attrgetter("offset"), reverse=True):
            del outside[placeholder.offset : placeholder.offset + placeholder.length]
        if self._plain.count(outside) - self._plain.count(ids):
            raise SpecialTokensError("The model's processor encodes the special tokens in the text; reword it.")


def _with_starts(rendered: Any, starts_s: Sequence[float]) -> Any:  # noqa: ANN401 - vLLM's EngineInput
    """Return a prompt of one video whose pairs begin at these times, if its positions depend on times."""
    [values] = rendered["mm_kwargs"]["video"]
    if SECONDS not in values or len(starts_s) < 2:  # noqa: PLR2004 - one pair has no rate
        return rendered
    starts = MultiModalFieldElem(data=torch.tensor(starts_s, dtype=torch.float64), field=values[SECONDS].field)
    return {
        **rendered,
        "mm_kwargs": MultiModalKwargsItems({"video": [MultiModalKwargsItem({**values, STARTS: starts})]}),
    }
