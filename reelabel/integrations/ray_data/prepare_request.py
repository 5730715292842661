"""Video preparation of requests, for `ray.data.llm`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reelabel.integrations.chat_messages import mark_videos, read_messages
from reelabel.integrations.ray_data.prepare import PrepareVideo
from reelabel.integrations.ray_data.rows import MESSAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# A row with an error skips the stages of a processor, and its postprocess.
_ERROR = "__inference_error__"


class PrepareRequest:
    """The `preprocess` of `ray.data.llm.build_processor` for requests about videos.

    A request names its videos in `messages` or in a column, as for `PrepareVideo`. Their frames become its
    `multimodal_data`, each video part of `messages` becomes the mark `{"type": "video"}`, and `video_meta` is added. If
    a video fails, so does its request alone: Ray's column `__inference_error__` holds the error.

    >>> build_processor(config, preprocess=PrepareRequest(ask, sampling={"num_frames": 8}))

    Instances can be pickled; tasks of one process share decoding processes.
    """

    def __init__(
        self,
        preprocess: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
        *,
        has_video: bool = True,
        **options: Any,  # noqa: ANN401 - those of PrepareVideo
    ) -> None:
        """Validate the options. No process is started yet.

        Args:
            preprocess: Makes a row's request: `messages`, `sampling_params` and others, which are added to the row;
                None if rows are requests already.
            has_video: Prepare videos; otherwise `preprocess` alone is called.
            options: Those of `PrepareVideo`, except `output_format` and `pack_for_model`, which the engine decides.

        Raises:
            ConfigurationError: An option is invalid.
        """
        self._preprocess = preprocess
        self._prepare = PrepareVideo(**options, pack_for_model=True) if has_video else None

    def __call__(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is added to a row."""
        added = {**self._preprocess({**row})} if self._preprocess else {}
        return added if self._prepare is None else added | self._add_videos({**row, **added}, self._prepare)

    def _add_videos(self, request: Mapping[str, Any], prepare: PrepareVideo) -> dict[str, Any]:
        prepared = prepare({name: [value] for name, value in request.items()})
        [videos], [metas] = prepared["video"], prepared["video_meta"]
        added = {"video_meta": metas}
        if metas is None:
            return added
        if errors := [meta["error"] for meta in metas if meta["failed"]]:
            return added | {_ERROR: " ".join(errors)}
        added["multimodal_data"] = {"video": videos}
        if request.get(MESSAGES) is not None:
            added[MESSAGES] = mark_videos(read_messages(request[MESSAGES]))
        return added
