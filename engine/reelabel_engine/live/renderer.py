"""Turn pairs of frames, audio, and the texts around them into parts of prompts, in processes beside the engine's."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch

from reelabel.errors import JobError
from reelabel.unexpected import failing_alone
from reelabel_engine.errors import InferenceError
from reelabel_engine.live_items import AUDIO_HZ, FRAMES_PER_PAIR, AudioSpan, FramePair
from reelabel_engine.positions import SECONDS
from reelabel_engine.protocol import LiveRequest, Question, Rejected
from reelabel_engine.renderer import HashedMedium, InputRenderer
from reelabel_engine.vllm_api import MultiModalFieldElem, MultiModalKwargsItem, PlaceholderRange

if TYPE_CHECKING:
    from reelabel_engine.prompts import ChoiceTokens

_MILLISECONDS = 1000
_CACHED_ENDS = 256
_PROBE_SIDE_PX = 56
_LENGTHS = "audio_feature_lengths"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedItem:
    """A pair of frames, or a span of audio, as a part of a prompt."""

    kind: Literal["video", "audio"]  # which of the two, as vLLM names it
    token_ids: tuple[int, ...]  # its placeholders, with texts between them if the model has any
    is_embed: torch.Tensor | None = field(repr=False)  # which of these the encoder's outputs replace; None for all
    values: MultiModalKwargsItem = field(repr=False)  # what the model's encoder takes
    time_s: float | None  # since the session began; None if its positions do not depend on it
    _placeholders: dict[int, PlaceholderRange] = field(default_factory=dict, init=False, repr=False)

    def at(self, offset: int) -> PlaceholderRange:
        placeholder = self._placeholders.get(offset)
        if placeholder is None:
            placeholder = PlaceholderRange(offset=offset, length=len(self.token_ids), is_embed=self.is_embed)
            self._placeholders[offset] = placeholder
        return placeholder


class PromptEnds(NamedTuple):
    """The tokens of a prompt around its items."""

    head: tuple[int, ...]  # tokens before the first item
    tail: tuple[int, ...] = ()  # tokens after the last one; empty without a question
    choices: ChoiceTokens = ()  # token ids per choice of the question


class LiveRenderer:
    """Renders the parts of live prompts: each item once, whatever the prompts that have it."""

    def __init__(self, renderer: InputRenderer) -> None:
        self._renderer = renderer
        self._placeholder: tuple[int, ...] | None = None
        self._ends = lru_cache(_CACHED_ENDS)(self._split_chat)

    def render(self, request: LiveRequest) -> tuple[dict[str, RenderedItem | Rejected], PromptEnds | Rejected]:
        """Render the items that came with a request, by their hashes, and what its prompt has around all of them."""
        items: dict[str, RenderedItem | Rejected] = {}
        for name, item in request.items.items():
            try:
                with failing_alone("Preparing what a session shows", stage=InferenceError.stage):
                    items[name] = self._audio(name, item) if isinstance(item, AudioSpan) else self._pair(name, item)
            except JobError as error:
                items[name] = Rejected.of(error)
        try:
            with failing_alone("Preparing the question of a session", stage=InferenceError.stage):
                return items, self._ends_of(request)
        except JobError as error:
            return items, Rejected.of(error)

    def _audio(self, name: str, item: AudioSpan) -> RenderedItem:
        config = self._renderer.hf_config.thinker_config
        token = config.audio_token_index
        prompt = {
            "prompt": self._renderer.tokenizer.convert_ids_to_tokens(token),
            "prompt_token_ids": [token],
            "multi_modal_data": {"audio": [(item.samples / np.float32(-np.iinfo(np.int16).min), AUDIO_HZ)]},
            "multi_modal_uuids": {"audio": [name]},
        }
        rendered = self._renderer.render(prompt)
        [values] = rendered["mm_kwargs"]["audio"]
        return RenderedItem(
            kind="audio",
            token_ids=tuple(rendered["prompt_token_ids"]),
            is_embed=None,
            values=_timed(values, item.time_s, like=_LENGTHS),
            time_s=item.time_s,
        )

    def _pair(self, name: str, item: FramePair) -> RenderedItem:
        nothing = Question(video_id="", text="", system_prompt=None, choices=())
        prompt = self._renderer.prompt(nothing, [_medium(name, item)])
        rendered = self._renderer.render(prompt)
        [placeholder] = rendered["mm_placeholders"]["video"]
        [values] = rendered["mm_kwargs"]["video"]
        if self._placeholder is None:
            chat = prompt["prompt_token_ids"]
            after = len(rendered["prompt_token_ids"]) - placeholder.offset - placeholder.length
            self._placeholder = tuple(chat[placeholder.offset : len(chat) - after])
        has_times = SECONDS in values
        return RenderedItem(
            kind="video",
            token_ids=tuple(rendered["prompt_token_ids"][placeholder.offset : placeholder.offset + placeholder.length]),
            is_embed=placeholder.is_embed,
            values=_timed(values, item.times_s[0], like=SECONDS) if has_times else values,
            time_s=item.times_s[0] if has_times else None,
        )

    def _ends_of(self, request: LiveRequest) -> PromptEnds:
        system_prompt, query = request.system_prompt, request.query
        begin: tuple[int, ...] = ()
        end: tuple[int, ...] = ()
        if request.has_audio:  # around its items, inside what is around any video
            config = self._renderer.hf_config.thinker_config
            begin, end = (config.audio_start_token_id,), (config.audio_end_token_id,)
        if query is None:
            return PromptEnds(head=self._ends(system_prompt, "").head + begin)
        ends = self._ends(system_prompt, query.text, query.turns)
        choices = self._renderer.tokens(query) if query.choices else ()
        return PromptEnds(head=ends.head + begin, tail=end + ends.tail, choices=choices)

    def _split_chat(self, system_prompt: str | None, text: str, turns: tuple[tuple[str, str], ...] = ()) -> PromptEnds:
        ids = self._renderer.render_chat(text, system_prompt, ("video",), turns).token_ids
        if self._placeholder is None:
            images = np.full((FRAMES_PER_PAIR, _PROBE_SIDE_PX, _PROBE_SIDE_PX, 3), 128, np.uint8)
            self._pair("probe", FramePair(images=images, times_s=(0.0, 0.5)))
        placeholder = self._placeholder or ()
        for start in range(len(ids) - len(placeholder) + 1) if placeholder else ():
            if ids[start : start + len(placeholder)] == placeholder:
                return PromptEnds(head=ids[:start], tail=ids[start + len(placeholder) :])
        raise InferenceError("The model's chat template shows no video; live sessions need one that does.")


def _medium(name: str, item: FramePair) -> HashedMedium:
    milliseconds = [round(time_s * _MILLISECONDS) for time_s in item.times_s]
    total = milliseconds[-1] + 1
    metadata = {
        "fps": float(_MILLISECONDS),
        "duration": total / _MILLISECONDS,
        "total_num_frames": total,
        "frames_indices": milliseconds,
        "video_backend": "reelabel",
        "do_sample_frames": False,
    }
    return HashedMedium(frames=(item.images, metadata), hash=name)


def _timed(values: MultiModalKwargsItem, time_s: float, *, like: str) -> MultiModalKwargsItem:
    """Replace the seconds between pairs, which a single item lacks, by its own time, which determines its positions."""
    seconds = MultiModalFieldElem(data=torch.tensor(time_s, dtype=torch.float64), field=values[like].field)
    return MultiModalKwargsItem({**values, SECONDS: seconds})
