"""The entry point `vllm.general_plugins`, which registers video loaders and a media connector in vLLM's processes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from vllm import envs
from vllm.exceptions import VLLMUnprocessableEntityError, VLLMValidationError
from vllm.multimodal.media import MEDIA_CONNECTOR_REGISTRY
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY, VideoLoader

from reelabel.errors import ConfigurationError, JobError
from reelabel.integrations.vllm.connector import RangeConnector
from reelabel.integrations.vllm.decode import decode_video, is_frame_file, read_frame_file, require_web
from reelabel.integrations.vllm.video_input import drop_repeated_frames, video_input

if TYPE_CHECKING:
    from reelabel.integrations.vllm.video_input import Video


_CONNECTOR = "reelabel"
_log = logging.getLogger("vllm.reelabel")  # below vLLM's own logger, so that it is seen


class KeyframeLoader(VideoLoader):  # type: ignore[misc]
    """`pyav_keyframes`, also as `pyav_keyframes_v2`: a video's keyframes, or the frames chosen by another sampler.

    Also accepts frame files, so that one server can serve both.
    """

    can_read_ranges = True  # through the media connector

    @classmethod
    def load_bytes(cls, data: bytes, *, repeat_frames: bool = True, **options: Any) -> Video:  # noqa: ANN401
        """Decode a video.

        Args:
            data: The bytes of a video file, or of a frame file, whose own picks are used.
            repeat_frames: Repeat frames if there are fewer than requested.
            options: The other `media_io_kwargs`: options of `reelabel.sampling.options.Sampling`, or of vLLM's own
                loaders where they mean the same.

        Returns:
            Frames as shown to the model, shape (M, H, W, 3), uint8; and metadata with their actual times, as defined
            by `reelabel.integrations.vllm.video_input`.

        Raises:
            VLLMValidationError: An option is unknown or invalid.
            VLLMUnprocessableEntityError: The video cannot be used.
        """
        if is_frame_file(data):
            return FrameFileLoader.load_bytes(data, repeat_frames=repeat_frames)
        try:
            video = video_input(decode_video(data, **options))
        except ConfigurationError as error:
            raise VLLMValidationError(error.message) from None
        except JobError as error:
            raise VLLMUnprocessableEntityError(error.message) from None
        return video if repeat_frames else drop_repeated_frames(video)


class FrameFileLoader(VideoLoader):  # type: ignore[misc]
    """`reelabel_frames`: a frame file in place of a video; its own picks are used."""

    @classmethod
    def load_bytes(cls, data: bytes, *, repeat_frames: bool = True, **_options: Any) -> Video:  # noqa: ANN401
        """Read a frame file, with its repeated picks or without.

        Returns:
            As `KeyframeLoader.load_bytes`.

        Raises:
            VLLMValidationError: PyArrow is not installed.
            VLLMUnprocessableEntityError: The frame file is damaged.
        """
        try:
            video = video_input(read_frame_file(data))
        except ConfigurationError as error:
            raise VLLMValidationError(error.message) from None
        except JobError as error:
            raise VLLMUnprocessableEntityError(error.message) from None
        return video if repeat_frames else drop_repeated_frames(video)


def register() -> None:
    """Register the loaders and the media connector with vLLM. Idempotent."""
    MEDIA_CONNECTOR_REGISTRY.register(_CONNECTOR)(RangeConnector)
    for name in ("pyav_keyframes", "pyav_keyframes_v2"):
        VIDEO_LOADER_REGISTRY.register(name)(KeyframeLoader)
    VIDEO_LOADER_REGISTRY.register("reelabel_frames")(FrameFileLoader)
    if envs.VLLM_MEDIA_CONNECTOR == _CONNECTOR:
        _warn_without_ranges()


def _warn_without_ranges() -> None:
    try:
        require_web()
    except ConfigurationError as error:
        _log.warning("%s Until then, vLLM reads videos whole.", error.message)
