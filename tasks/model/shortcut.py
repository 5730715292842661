"""Videos laid out as a model's processor would lay them out, by the few steps that this takes.

What Qwen2-VL's processor, which Qwen2.5-VL shares, does to frames of the model's own size is a change of
their order. The library takes several times as long to check and merge its settings, anew for each video.
So it lays out the first video of each size, and ours beside it must equal that to the last bit; only then
are further videos of that size laid out by ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.video_utils import VideoMetadata
from vllm.inputs.engine import mm_input
from vllm.multimodal.inputs import MultiModalFieldElem, MultiModalKwargsItem, MultiModalKwargsItems, PlaceholderRange

if TYPE_CHECKING:
    import numpy.typing as npt

_PIXELS = "pixel_values_videos"
_GRID = "video_grid_thw"
_SECONDS = "second_per_grid_ts"
_RGB = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """How a model cuts a video.

    Attributes:
        frames: Frames of one patch.
        side_px: Its height and width.
        merged: Patches that become one token, along each side.
    """

    frames: int
    side_px: int
    merged: int

    def cut(self, video: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Put pixels in the order of patches, as `Qwen2VLVideoProcessor` does in transformers.

        Args:
            video: Shape (M, H, W, 3); both sides whole merged patches.

        Returns:
            Shape (patches, 3 * frames * side_px * side_px), uint8.
        """
        count, height, width, _ = video.shape
        last = video[-1:].repeat(-count % self.frames, axis=0)
        video = np.concatenate([video, last]) if len(last) else np.ascontiguousarray(video)
        times, down, across = len(video) // self.frames, height // self.side_px, width // self.side_px
        rows = video.reshape(
            *(times, self.frames),
            *(down // self.merged, self.merged, self.side_px),
            *(across // self.merged, self.merged, self.side_px * _RGB),
        )
        # A patch's row is moved as one value; its channels are parted at last.
        values = rows.view(np.dtype((np.void, self.side_px * _RGB)))[..., 0]
        ordered = np.ascontiguousarray(values.transpose(0, 2, 5, 3, 6, 1, 4)).view(np.uint8)
        pixels = ordered.reshape(times * down * across, self.frames * self.side_px**2, _RGB)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(len(pixels), -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What videos of one size share once they are laid out."""

    patches: Patches
    elements: dict[str, MultiModalFieldElem] = field(repr=False)
    token: int
    tokens: int

    @classmethod
    def of(cls, patches: Patches, ids: list[int], rendered: Any) -> _Layout | None:  # noqa: ANN401 - vLLM's
        """Take a layout from a video that the library has laid out; None where it is of another kind."""
        [item] = rendered["mm_kwargs"]["video"]
        [place] = rendered["mm_placeholders"]["video"]
        if {_PIXELS, _GRID} <= item.keys() <= {_PIXELS, _GRID, _SECONDS} and place.is_embed is None:
            return cls(patches=patches, elements=dict(item), token=ids[place.offset], tokens=place.length)
        return None

    def lay_out(self, video: npt.NDArray[np.uint8], metadata: dict[str, Any]) -> MultiModalKwargsItem:
        """Lay out another video of the size."""
        made = {_PIXELS: self.patches.cut(video)}
        if _SECONDS in self.elements:
            timed = ("total_num_frames", "fps", "duration", "frames_indices")
            shown_a_second = VideoMetadata(**{name: metadata[name] for name in timed}).sampled_fps
            made[_SECONDS] = torch.tensor(self.patches.frames / shown_a_second)
        return MultiModalKwargsItem(
            {
                name: MultiModalFieldElem(data=made.get(name, element.data), field=element.field)
                for name, element in self.elements.items()
            }
        )

    def ask(self, prompt: dict[str, Any], item: MultiModalKwargsItem) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        """Ask a question about a video that is laid out; None where there is not just one place for it."""
        ids = prompt["prompt_token_ids"]
        if ids.count(self.token) != 1:
            return None
        offset = ids.index(self.token)
        rendered = mm_input(
            prompt_token_ids=[*ids[:offset], *[self.token] * self.tokens, *ids[offset + 1 :]],
            mm_kwargs=MultiModalKwargsItems({"video": [item]}),
            mm_hashes={"video": list(prompt["multi_modal_uuids"]["video"])},
            mm_placeholders={"video": [PlaceholderRange(offset=offset, length=self.tokens)]},
            prompt=prompt["prompt"],
        )
        rendered["arrival_time"] = time.time()
        return rendered


class Shortcut:
    """Renders prompts about videos of sizes that it knows, as vLLM's renderer would."""

    def __init__(self, renderer: Any, *, max_model_len: int) -> None:  # noqa: ANN401 - vLLM's
        """Look whether the model's processor is one that it can stand for.

        Args:
            renderer: vLLM's, of the model.
            max_model_len: Most tokens of a prompt and its answer.
        """
        processor: Any = getattr(renderer.get_mm_processor().info.get_hf_processor(), "video_processor", None)
        self._patches = _patches(processor) if type(processor) is Qwen2VLVideoProcessor else None
        self._max_model_len = max_model_len
        self._layouts: dict[tuple[int, ...], _Layout | None] = {}
        self._last: tuple[str, MultiModalKwargsItem] | None = None  # questions on one video share its pixels

    def render(self, prompt: dict[str, Any]) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        """Render a prompt of `InputRenderer.prompt`; None where vLLM must."""
        [(video, metadata)] = prompt["multi_modal_data"]["video"]
        layout = self._layouts.get(video.shape)
        if layout is None or len(prompt["prompt_token_ids"]) + layout.tokens > self._max_model_len:
            return None  # of what is too long, vLLM says so
        [video_hash] = prompt["multi_modal_uuids"]["video"]
        if self._last is None or self._last[0] != video_hash:
            self._last = video_hash, layout.lay_out(video, metadata)
        return layout.ask(prompt, self._last[1])

    def learn(self, prompt: dict[str, Any], rendered: Any) -> None:  # noqa: ANN401 - vLLM's EngineInput
        """Look how vLLM rendered a prompt; videos of its size are known from now on, if ours is the same."""
        [(video, _)] = prompt["multi_modal_data"]["video"]
        if self._patches is None or video.shape in self._layouts:
            return
        layout = _Layout.of(self._patches, prompt["prompt_token_ids"], rendered)
        if layout and _is_cut(video, self._patches) and _are_same(layout, prompt, rendered):
            self._layouts[video.shape] = layout
            self._last = rendered["mm_hashes"]["video"][0], rendered["mm_kwargs"]["video"][0]
        else:
            self._layouts[video.shape] = None


def _patches(processor: Qwen2VLVideoProcessor) -> Patches:
    return Patches(frames=processor.temporal_patch_size, side_px=processor.patch_size, merged=processor.merge_size)


def _is_cut(video: npt.NDArray[np.uint8], patches: Patches) -> bool:
    """Tell whether both sides are whole merged patches, so that nothing is scaled."""
    return not any(length % (patches.side_px * patches.merged) for length in video.shape[1:3])


def _are_same(layout: _Layout, prompt: dict[str, Any], rendered: Any) -> bool:  # noqa: ANN401 - vLLM's EngineInput
    [(video, metadata)] = prompt["multi_modal_data"]["video"]
    ours = layout.ask(prompt, layout.lay_out(video, metadata))
    if ours is None or ours.keys() != rendered.keys():
        return False
    plain = rendered.keys() - {"mm_kwargs", "arrival_time"}
    return all(ours[name] == rendered[name] for name in plain) and all(
        _is_same_tensor(element.data, rendered["mm_kwargs"]["video"][0][name].data)
        for name, element in ours["mm_kwargs"]["video"][0].items()
    )


def _is_same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and bool(torch.equal(one, other))
