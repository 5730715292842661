"""Decoding one video piece by piece, in one pass even where nothing but a linear decode is exact."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

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

    Lend: TypeAlias = Callable[[Modules], AbstractContextManager[DecodingProcess]]


@dataclass(slots=True)
class PieceDecoder:
    """Decodes pieces of one video, in order of time. Used by one thread at a time.

    Each piece is decoded by itself as long as that is exact. From the first one on that is not, a decoding process is
    kept for the video, which decodes it from its beginning: once to list its frames, and once for all pieces. Close it
    to give that process back; pieces that follow nevertheless are decoded in another pass.

    Attributes:
        extract_fast: Decodes a piece by itself.
        extract_in_order: Decodes it in a process that the argument `lend` lends.
        lend: Lends a process that has imported some modules.
        is_in_order: Whether the video is decoded from its beginning.
        pieces: Number of pieces so far.
    """

    extract_fast: Callable[..., SampledFrames]
    extract_in_order: Callable[..., SampledFrames]
    lend: Lend
    is_in_order: bool = False
    pieces: int = 0
    _reason: str = ""
    _process: DecodingProcess | None = None
    _lent: ExitStack = field(default_factory=ExitStack)

    def extract(
        self, video: Path | VideoFile, *, sampling: Sampling, limits: Limits, segment: Segment
    ) -> SampledFrames:
        """Decode the next piece, as `DecodePool.extract` does.

        Raises:
            VideoError: As `DecodePool.extract` does.
            DecodersLostError: As `DecodePool.extract` does.
        """
        wasted, self.pieces = 0, self.pieces + 1
        if not self.is_in_order:
            try:
                return self.extract_fast(video, sampling=sampling, limits=limits, segment=segment, fast_only=True)
            except FallbackRequired as error:
                self.is_in_order, self._reason, wasted = True, str(error), error.frames_decoded
        got = self.extract_in_order(video, sampling=sampling, limits=limits, segment=segment, lend=self._lend_again)
        reason = "; ".join(filter(None, [self._reason, got.reason]))
        return replace(got, reason=reason, frames_decoded=got.frames_decoded + wasted)

    def close(self) -> None:
        """Give the process back."""
        if self._process and self._process.is_in_order:
            self._process.end_order()
        self._process = None
        self._lent.close()

    @contextmanager
    def _lend_again(self, modules: Modules) -> Iterator[DecodingProcess]:
        """Lend the process that has the video open, or another one that stays lent unless it fails."""
        if self._process is None:
            self._process = self._lent.enter_context(self.lend(modules))
        try:
            yield self._process
        finally:
            if not self._process.is_in_order:
                self.close()
