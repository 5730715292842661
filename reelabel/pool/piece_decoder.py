"""Decoding one video piece by piece, in one pass even where nothing but a linear decode is exact."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from reelabel.errors import FallbackRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from reelabel.limits import Limits
    from reelabel.pool.process import DecodingProcess
    from reelabel.pool.processes import Modules
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sampling.options import Sampling
    from reelabel.segment import Segment
    from reelabel.sources.video_file import VideoFile

    Acquire: TypeAlias = Callable[[Modules], AbstractContextManager[DecodingProcess]]


@dataclass(slots=True)
class PieceDecoder:
    """Decodes pieces of one video, in order of time. Used by one thread at a time.

    Each piece is decoded by itself as long as that is exact. From the first one on that is not, a decoding process is
    kept for the video, which decodes it from its beginning: once to list its frames, and once for all pieces. Close it
    to release that process; pieces that follow nevertheless are decoded in another pass.

    Attributes:
        extract_fast: Decodes a piece by itself.
        extract_in_order: Decodes it in a process that its argument `acquire` provides.
        acquire: Provides a process that has imported some modules, for a `with` block.
        is_in_order: Whether the video is decoded from its beginning.
        pieces: Number of pieces so far.
    """

    extract_fast: Callable[..., SampledFrames]
    extract_in_order: Callable[..., SampledFrames]
    acquire: Acquire
    is_in_order: bool = False
    pieces: int = 0
    _reason: str = ""
    _process: DecodingProcess | None = None
    _acquired: ExitStack = field(default_factory=ExitStack)

    def extract(
        self,
        video: Path | VideoFile,
        *,
        sampling: Sampling,
        limits: Limits,
        segment: Segment,
        **options: Any,  # noqa: ANN401 - `native` and `wanted`
    ) -> SampledFrames:
        """Decode the next piece, as `DecodePool.extract` does.

        Raises:
            VideoError: As `DecodePool.extract` does.
            DecodersLostError: As `DecodePool.extract` does.
        """
        options |= {"sampling": sampling, "limits": limits, "segment": segment}
        wasted, self.pieces = 0, self.pieces + 1
        if not self.is_in_order:
            try:
                return self.extract_fast(video, fast_only=True, **options)
            except FallbackRequired as error:
                self.is_in_order, self._reason, wasted = True, str(error), error.frames_decoded
        got = self.extract_in_order(video, acquire=self._acquire_again, **options)
        reason = "; ".join(filter(None, [self._reason, got.reason]))
        return replace(got, reason=reason, frames_decoded=got.frames_decoded + wasted)

    def close(self) -> None:
        """Release the process."""
        if self._process and self._process.is_in_order:
            self._process.end_order()
        self._process = None
        self._acquired.close()

    @contextmanager
    def _acquire_again(self, modules: Modules) -> Iterator[DecodingProcess]:
        """Acquire the process that has the video open, or another one that stays acquired unless it fails."""
        if self._process is None:
            self._process = self._acquired.enter_context(self.acquire(modules))
        try:
            yield self._process
        finally:
            if not self._process.is_in_order:
                self.close()
