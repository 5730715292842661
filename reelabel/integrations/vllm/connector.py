"""A media connector for vLLM, which hands a loader no whole video where ranges suffice: `VLLM_MEDIA_CONNECTOR`."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm import envs
from vllm.exceptions import VLLMValidationError
from vllm.multimodal.media import MediaConnector, MediaWithBytes, VideoMediaIO
from vllm.multimodal.media.connector import global_thread_pool

from reelabel.errors import ConfigurationError
from reelabel.integrations.vllm.decode import decode_url
from reelabel.integrations.vllm.video_input import drop_repeated_frames, video_input

if TYPE_CHECKING:
    from vllm.multimodal.media.base import MediaIO

    from reelabel.integrations.vllm.video_input import Video


class RangeConnector(MediaConnector):  # type: ignore[misc]
    """`reelabel`: reads a remote video for the loader `pyav_keyframes` by ranges, and anything else as vLLM does."""

    def load_from_url(self, url: str, media_io: MediaIO[Any], *, fetch_timeout: int | None = None) -> Any:  # noqa: ANN401
        """Load media, a video by ranges if they suffice."""
        video = self._load_by_ranges(url, media_io, fetch_timeout)
        return video or super().load_from_url(url, media_io, fetch_timeout=fetch_timeout)

    async def load_from_url_async(
        self,
        url: str,
        media_io: MediaIO[Any],
        *,
        fetch_timeout: int | None = None,
    ) -> Any:  # noqa: ANN401
        """Load media as `load_from_url` does, without blocking the event loop."""
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
        try:
            found = decode_url(
                url,
                options,
                hosts=tuple(self.allowed_media_domains),
                timeout_s=float(fetch_timeout or envs.VLLM_VIDEO_FETCH_TIMEOUT),
                max_bytes=media_io.get_max_bytes(),
            )
        except ConfigurationError as error:
            raise VLLMValidationError(error.message) from None
        if found is None:
            return None
        video = video_input(found.frames)
        # vLLM hashes a video's bytes to find what it has processed before; this tells videos and choices apart as well.
        identity = json.dumps([url, found.fingerprint, options, repeats], default=str)
        return MediaWithBytes(video if repeats else drop_repeated_frames(video), identity.encode())


def _is_ours(media_io: MediaIO[Any]) -> bool:
    return isinstance(media_io, VideoMediaIO) and getattr(media_io.video_loader, "can_read_ranges", False)
