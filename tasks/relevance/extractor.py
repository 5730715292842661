"""Extraction of the frames that fit a question best."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reelabel.errors import FrameFileError, SamplingRefusedError
from reelabel.frames.extractor import FrameExtractor
from reelabel.sampling.passes import with_times
from reelabel_engine.errors import InferenceError
from tasks.relevance.choice import choose_frames

if TYPE_CHECKING:
    from reelabel.frames.extractor import ExtractedVideo
    from reelabel.sources.object_store import ObjectInfo
    from tasks.domain import View
    from tasks.embedding.video import EmbeddedVideo, VideoEmbedder
    from tasks.relevance.texts import TextEmbedder

_NEARLY = 0.75  # frames are up to half a frame's duration off the instants that they were chosen for


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevantExtractor(FrameExtractor):
    """Extracts the frames of views that fit what is asked about them best. Thread-safe.

    Attributes:
        embedder: Embeds the frames to choose from, once for all questions on a video, or finds their embeddings.
        texts: Embeds what is asked.
    """

    embedder: VideoEmbedder
    texts: TextEmbedder

    def prepare_asked(self, view: View, info: ObjectInfo | None = None) -> ExtractedVideo:
        """Extract the frame file of a view, whose texts choose the frames, into the cache, unless it is there already.

        Raises:
            VideoError: The video cannot be used; see its code.
            EngineLostError: The towers die.
            TransientError: The store is unavailable.
        """
        embedded = self._embed(view, info)
        asked = self.texts.embed(view.texts)
        chosen = choose_frames(
            embedded.embeddings,
            asked.vectors,
            self.sampling.num_frames,
            apart_ms=self._apart_ms(embedded.embeddings.duration_s),
        )
        sampling = with_times(self.sampling, chosen.times_ms)
        video = self.prepare(embedded.info.uri, embedded.info, segment=view.segment, sampling=sampling)
        seen, cost = video.provenance, embedded.cost
        notes = (chosen.note, asked.note, embedded.embeddings.note, embedded.remade, seen.decode_note)
        return replace(
            video,
            provenance=replace(
                seen,
                chosen_ms=",".join(map(str, chosen.times_ms)),
                decode_note="; ".join(dict.fromkeys(filter(None, notes))),
                frames_decoded=seen.frames_decoded + cost.frames_decoded,
                bytes_fetched=seen.bytes_fetched + cost.bytes_fetched,
                fetch_ms=seen.fetch_ms + cost.fetch_ms,
                decode_ms=seen.decode_ms + cost.decode_ms,
                embed_ms=cost.embed_ms,
                cache_write_ms=seen.cache_write_ms + cost.cache_write_ms,
            ),
        )

    def _apart_ms(self, duration_s: float) -> float:
        """Return how far apart frames must be: nearly as far as those of a whole chunk, if there is one."""
        spec = self.embedder.spec
        if duration_s <= spec.seconds_per_chunk:
            return 0.0
        return _NEARLY * spec.seconds_per_chunk * 1e3 / spec.frames_per_chunk

    def _embed(self, view: View, info: ObjectInfo | None) -> EmbeddedVideo:
        try:
            return self.embedder.embed_segment(view.video_uri, view.segment, info)
        except (InferenceError, FrameFileError) as error:
            refused = SamplingRefusedError(
                f"The sampler relevant cannot read the frames of this video: {error.message} Use another sampler."
            )
            refused.fingerprint = info.fingerprint if info else None
            raise refused from error
