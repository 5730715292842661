"""A fast path for the video processor of Qwen2-VL and Qwen2.5-VL.

Frames that already have the model's size are only reordered into patches by that processor; most of its time goes
into checking and merging its settings, once per video. When a size comes a second time, noise of that size is
processed by both the library and the fast path; only if the results are equal to the last bit do further videos
of that size take the fast path. All others go through the library.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.video_utils import VideoMetadata

from reelabel.errors import JobError
from reelabel_engine.positions import SECONDS
from reelabel_engine.vllm_api import (
    MultiModalFieldElem,
    MultiModalKwargsItem,
    MultiModalKwargsItems,
    PlaceholderRange,
    mm_input,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

_PIXELS = "pixel_values_videos"
_GRID = "video_grid_thw"
_RGB = 3
_LONGER = 7  # frames; any number that changes the seconds between sampled frames


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchGeometry:
    """How a model splits a video into patches."""

    frames: int  # frames per patch
    side_px: int  # height and width of a patch
    merged: int  # patches per token along each side

    def cut(self, video: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Reorder pixels into patches, as `Qwen2VLVideoProcessor` of transformers does.

        Args:
            video: Shape (M, H, W, 3); height and width are multiples of `side_px * merged`.

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
        # Move each row of a patch as one value; split the channels last.
        values = rows.view(np.dtype((np.void, self.side_px * _RGB)))[..., 0]
        ordered = np.ascontiguousarray(values.transpose(0, 2, 5, 3, 6, 1, 4)).view(np.uint8)
        pixels = ordered.reshape(times * down * across, self.frames * self.side_px**2, _RGB)
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(len(pixels), -1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What all processed videos of one size share."""

    patches: PatchGeometry
    kinds: dict[str, Any] = field(repr=False)  # how vLLM batches videos, by the name of the processor's output
    grid: torch.Tensor  # patches along time, height and width
    numbers: torch.dtype  # the model's numeric type, used for seconds
    token: int  # id of the video's placeholder token
    tokens: int  # number of placeholder tokens in the processed prompt

    @classmethod
    def of(cls, patches: PatchGeometry, ids: list[int], rendered: Any) -> _Layout | None:  # noqa: ANN401 - vLLM's
        """Derive a layout from a video that the library has processed; None if its outputs differ in kind."""
        [item] = rendered["mm_kwargs"]["video"]
        [placeholder] = rendered["mm_placeholders"]["video"]
        if not {_PIXELS, _GRID} <= item.keys() <= {_PIXELS, _GRID, SECONDS}:
            return None
        return cls(
            patches=patches,
            kinds={name: element.field for name, element in item.items()},
            grid=item[_GRID].data,
            numbers=item[SECONDS].data.dtype if SECONDS in item else torch.float32,
            token=ids[placeholder.offset],
            tokens=placeholder.length,
        )

    def lay_out(self, video: npt.NDArray[np.uint8], metadata: dict[str, Any]) -> MultiModalKwargsItem:
        timed = ("total_num_frames", "fps", "duration", "frames_indices")
        shown_per_s = VideoMetadata(**{name: metadata[name] for name in timed}).sampled_fps
        values = {
            _PIXELS: self.patches.cut(video),
            _GRID: self.grid,
            SECONDS: torch.tensor(self.patches.frames / shown_per_s).to(self.numbers),
        }
        return MultiModalKwargsItem(
            {name: MultiModalFieldElem(data=values[name], field=kind) for name, kind in self.kinds.items()}
        )

    def ask(self, prompt: dict[str, Any], item: MultiModalKwargsItem) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        """Build the engine input of a question on a processed video; None unless it has exactly one placeholder."""
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


class QwenFastPath:
    """Renders prompts about videos of proven sizes, exactly as vLLM's renderer would."""

    def __init__(self, renderer: Any, by_library: Callable[[dict[str, Any]], Any], *, max_model_len: int) -> None:  # noqa: ANN401
        processor: Any = getattr(renderer.get_mm_processor().info.get_hf_processor(), "video_processor", None)
        self._patches = (
            PatchGeometry(
                frames=processor.temporal_patch_size, side_px=processor.patch_size, merged=processor.merge_size
            )
            if type(processor) is Qwen2VLVideoProcessor
            else None
        )
        self._by_library = by_library
        self._max_model_len = max_model_len
        self._layouts: dict[tuple[int, ...], _Layout | None] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._last: tuple[str, MultiModalKwargsItem] | None = None  # questions on one video share its pixels

    def render(self, prompt: dict[str, Any]) -> Any:  # noqa: ANN401 - vLLM's EngineInput
        """Render a prompt from `InputRenderer.prompt`; None if the library must do it."""
        [(video, metadata)] = prompt["multi_modal_data"]["video"]
        layout = self._layouts.get(video.shape)
        if layout is None or len(prompt["prompt_token_ids"]) + layout.tokens > self._max_model_len:
            return None  # if it is too long, the library raises the error
        [video_hash] = prompt["multi_modal_uuids"]["video"]
        if self._last is None or self._last[0] != video_hash:
            self._last = video_hash, layout.lay_out(video, metadata)
        return layout.ask(prompt, self._last[1])

    def learn(self, prompt: dict[str, Any], rendered: Any) -> None:  # noqa: ANN401 - vLLM's EngineInput
        """Learn from a prompt that the library has rendered; its video's size is proven when it comes again."""
        [(video, _)] = prompt["multi_modal_data"]["video"]
        if self._patches is None or video.shape in self._layouts:
            return
        if video.shape not in self._seen:  # a size that comes only once is not worth a proof
            self._seen.add(video.shape)
            return
        layout = _Layout.of(self._patches, prompt["prompt_token_ids"], rendered)
        self._layouts[video.shape] = layout if layout and self._is_proven(layout, prompt) else None

    def _is_proven(self, layout: _Layout, prompt: dict[str, Any]) -> bool:
        """Compare both paths on a video of noise, which reveals any misplaced pixel, with another frame interval."""
        [(video, metadata)] = prompt["multi_modal_data"]["video"]
        if any(side % (layout.patches.side_px * layout.patches.merged) for side in video.shape[1:3]):
            return False  # the processor would scale it
        noise = np.random.default_rng(0).integers(0, 256, video.shape, np.uint8)
        longer = metadata | {"total_num_frames": metadata["total_num_frames"] + _LONGER}
        probe = prompt | {
            "multi_modal_data": {"video": [(noise, longer)]},
            "multi_modal_uuids": {"video": [f"noise {video.shape}"]},
        }
        try:
            theirs = self._by_library(probe)
        except JobError:
            return False
        ours = layout.ask(probe, layout.lay_out(noise, longer))
        return ours is not None and _are_same(ours, theirs)


def _are_same(ours: Any, theirs: Any) -> bool:  # noqa: ANN401 - vLLM's EngineInput
    plain = theirs.keys() - {"mm_kwargs", "arrival_time"}
    [item], [other] = ours["mm_kwargs"]["video"], theirs["mm_kwargs"]["video"]
    return (
        ours.keys() == theirs.keys()
        and all(ours[name] == theirs[name] for name in plain)
        and item.keys() == other.keys()
        and all(element.data.dtype == other[name].data.dtype for name, element in item.items())
        and all(torch.equal(element.data, other[name].data) for name, element in item.items())
    )
