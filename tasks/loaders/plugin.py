"""The entry point `vllm.general_plugins`, by which vLLM finds our video loaders in each of its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.exceptions import VLLMUnprocessableEntityError, VLLMValidationError
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY, VideoLoader

from infra.errors import ConfigurationError, JobError
from tasks.loaders.decode import decode_video, is_frame_file, read_frame_file
from tasks.model.families import each_once
from tasks.model.video_input import video_input

if TYPE_CHECKING:
    from tasks.model.families import Video


class KeyframeLoader(VideoLoader):  # type: ignore[misc]
    """`pyav_keyframes`: a video's keyframes, or the frames that another of our samplers chooses.

    Frame files are taken, too, so that one server takes both.
    """

    @classmethod
    def load_bytes(cls, data: bytes, *, repeat_frames: bool = True, **options: Any) -> Video:  # noqa: ANN401
        """Decode a video.

        Args:
            data: A whole video, or a whole frame file, which shows its own picks.
            repeat_frames: Show keyframes repeatedly where there are fewer than were asked for.
            options: The others of `media_io_kwargs`: those of `tasks.domain.Sampling`.

        Returns:
            Frames as shown, shape (M, H, W, 3), uint8; and their true times, as `tasks.model.video_input`
            lays them out.

        Raises:
            VLLMValidationError: An option is unknown or has no such value.
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
        return video if repeat_frames else each_once(video)


class FrameFileLoader(VideoLoader):  # type: ignore[misc]
    """`reelabel_frames`: a frame file in the place of a video; shows its own picks."""

    @classmethod
    def load_bytes(cls, data: bytes, *, repeat_frames: bool = True, **_options: Any) -> Video:  # noqa: ANN401
        """Read a frame file.

        Args:
            data: A whole frame file.
            repeat_frames: Show picks repeatedly where the file does.

        Returns:
            As `KeyframeLoader.load_bytes` does.

        Raises:
            VLLMUnprocessableEntityError: The frame file is damaged.
        """
        try:
            video = video_input(read_frame_file(data))
        except JobError as error:
            raise VLLMUnprocessableEntityError(error.message) from None
        return video if repeat_frames else each_once(video)


def register() -> None:
    """Name our loaders to vLLM; may be called again."""
    VIDEO_LOADER_REGISTRY.register("pyav_keyframes")(KeyframeLoader)
    VIDEO_LOADER_REGISTRY.register("reelabel_frames")(FrameFileLoader)
