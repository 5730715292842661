"""The entry point `vllm.general_plugins`, which registers video loaders and a media connector in vLLM's processes."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm import envs
from vllm.exceptions import VLLMUnprocessableEntityError, VLLMValidationError
from vllm.multimodal.media import MEDIA_CONNECTOR_REGISTRY, MediaConnector, MediaWithBytes, VideoMediaIO
from vllm.multimodal.media.connector import global_thread_pool
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY, VideoLoader

from reelabel.errors import ConfigurationError, JobError
from reelabel.integrations.vllm.decode import check_web, decode_url, decode_video, is_frame_file, read_frame_file
from reelabel.integrations.vllm.video_input import drop_repeated_frames, video_input

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm.multimodal.media.base import MediaIO

    from reelabel.integrations.vllm.video_input import Video


_CONNECTOR = "reelabel"
_log = logging.getLogger("vllm.reelabel")  # below vLLM's own logger, so that it is seen


@contextmanager
def _vllm_errors() -> Iterator[None]:
    try:
        yield
    except ConfigurationError as error:
        raise VLLMValidationError(error.message) from None
    except JobError as error:
        raise VLLMUnprocessableEntityError(error.message) from None


class KeyframeLoader(VideoLoader):  # type: ignore[misc]
    """`pyav_keyframes`, also as `pyav_keyframes_v2`: a video's keyframes, or the frames chosen by another sampler.

    Also accepts frame files, so that one server can serve both.
    """

    can_read_ranges = True  # through the media connector

    @classmethod
    def load_bytes(cls, data: bytes, *, repeat_frames: bool = True, **options: Any) -> Video:  # noqa: ANN401
        """Decode a video, or read a frame file, whose own picks are used.

        Args:
            data: The bytes of the file.
            repeat_frames: Repeat frames if there are fewer than requested.
            options: The other `media_io_kwargs`: options of `reelabel.sampling.options.Sampling`, or of vLLM's own
                loaders where they mean the same.

        Returns:
            Frames as shown to the model, shape (M, H, W, 3), uint8; and metadata with their actual times, as defined
            by `reelabel.integrations.vllm.video_input`.
        """
        if is_frame_file(data):
            return FrameFileLoader.load_bytes(data, repeat_frames=repeat_frames)
        with _vllm_errors():
            video = video_input(decode_video(data, **options))
        return video if repeat_frames else drop_repeated_frames(video)


class FrameFileLoader(VideoLoader):  # type: ignore[misc]
    """`reelabel_frames`: a frame file in place of a video; its own picks are used."""

    @classmethod
    def load_bytes(cls, data: bytes, *, repeat_frames: bool = True, **_options: Any) -> Video:  # noqa: ANN401
        """Read a frame file, with its repeated picks or without, as `KeyframeLoader.load_bytes` does."""
        with _vllm_errors():
            video = video_input(read_frame_file(data))
        return video if repeat_frames else drop_repeated_frames(video)


def register() -> None:
    """Register the loaders and the media connector with vLLM. Idempotent."""
    MEDIA_CONNECTOR_REGISTRY.register(_CONNECTOR)(RangeConnector)
    for name in ("pyav_keyframes", "pyav_keyframes_v2"):
        VIDEO_LOADER_REGISTRY.register(name)(KeyframeLoader)
    VIDEO_LOADER_REGISTRY.register("reelabel_frames")(FrameFileLoader)
    if envs.VLLM_MEDIA_CONNECTOR == _CONNECTOR:
        try:
            check_web()
        except ConfigurationError as error:
            _log.warning("%s Until then, vLLM reads videos whole.", error.message)


class RangeConnector(MediaConnector):  # type: ignore[misc]
    """`reelabel`: reads a remote video for the loader `pyav_keyframes` by ranges, and anything else as vLLM does."""

    def load_from_url(self, url: str, media_io: MediaIO[Any], *, fetch_timeout: int | None = None) -> Any:  # noqa: ANN401
        video = self._load_by_ranges(url, media_io, fetch_timeout)
        return video or super().load_from_url(url, media_io, fetch_timeout=fetch_timeout)

    async def load_from_url_async(self, url: str, media_io: MediaIO[Any], *, fetch_timeout: int | None = None) -> Any:  # noqa: ANN401
        by_ranges = partial(self._load_by_ranges, url, media_io, fetch_timeout)
        video = await asyncio.get_running_loop().run_in_executor(global_thread_pool, by_ranges)
        return video or await super().load_from_url_async(url, media_io, fetch_timeout=fetch_timeout)

    def _load_by_ranges(
        self, url: str, media_io: MediaIO[Any], fetch_timeout: int | None
    ) -> MediaWithBytes[Video] | None:
        if not (url[:4].lower() == "http" and _is_ours(media_io) and envs.VLLM_MEDIA_URL_ALLOW_REDIRECTS):
            return None
        options = {"num_frames": media_io.num_frames, **media_io.kwargs}
        repeats = options.pop("repeat_frames", True)
        with _vllm_errors():
            found = decode_url(
                url,
                options,
                hosts=tuple(self.allowed_media_domains),
                timeout_s=float(fetch_timeout or envs.VLLM_VIDEO_FETCH_TIMEOUT),
                max_bytes=media_io.get_max_bytes(),
            )
        if found is None:
            return None
        video = video_input(found.frames)
        # vLLM identifies a processed video by a hash of its bytes; these bytes also identify the options.
        identity = json.dumps([url, found.fingerprint, options, repeats], default=str)
        return MediaWithBytes(video if repeats else drop_repeated_frames(video), identity.encode())


def _is_ours(media_io: MediaIO[Any]) -> bool:
    return isinstance(media_io, VideoMediaIO) and getattr(media_io.video_loader, "can_read_ranges", False)
