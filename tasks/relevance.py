"""Frames chosen by what is asked: adaptive keyframe sampling over the embeddings of a video's frames.

Xi Tang, Jihao Qiu, Lingxi Xie, Yunjie Tian, Jianbin Jiao, Qixiang Ye: Adaptive Keyframe Sampling for Long Video
Understanding, CVPR 2025, arXiv:2502.21271. A video whose best frames stand out from it is shown by these alone;
otherwise it is halved, each half is shown half as many frames, and the same is decided for each of them.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from reelabel.errors import FrameFileError, SamplingRefusedError
from reelabel.sampling.uniform import pick_evenly
from reelabel_engine.errors import InferenceError
from tasks.domain.passes import with_times
from tasks.embedding.encoder import open_encoder, read_encoder_info
from tasks.embedding.video import open_embedder
from tasks.frame_cache.extractor import FrameExtractor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from infra.settings import Settings
    from reelabel.sources.object_store import ObjectInfo, ObjectStore
    from tasks.description.embeddings import Embeddings
    from tasks.domain import EmbeddingSpec, View
    from tasks.embedding.encoder import EmbeddedTexts, Encoder
    from tasks.embedding.video import EmbeddedVideo, VideoEmbedder
    from tasks.frame_cache.extractor import ExtractedVideo

    _Scores: TypeAlias = npt.NDArray[np.float64]

# By how much the mean of the best frames must exceed that of all for them to be enough, of the range of all scores. The
# authors' code has 0.8, with which fewer frames show what a question is about.
STANDS_OUT = 0.5
HALVINGS = 5  # at most, as in the authors' code
# Scores that differ by less are equal: vectors are stored in half precision.
_FLAT = 1e-3
_NEARLY = 0.75  # frames are up to half a frame's duration off the instants that they were chosen for
_TEXTS_IN_MEMORY = 10_000
_MS = 1000


def choose_adaptively(scores: npt.NDArray[np.floating], count: int, *, stands_out: float = STANDS_OUT) -> list[int]:
    """Choose at least one of the frames that fit best, spread over time, by their scores in order of time, shape (N,).

    Where the paper leaves it open: of equal scores, the earlier frame is taken; of an odd number of frames, the half
    with the better best frame is shown one more, or if they are equal, the first one. If all frames fit equally well,
    they are chosen evenly.

    Returns:
        Indices of min(count, N) frames, ascending.

    Raises:
        ValueError: A score is not finite, or there is none.
    """
    if scores.ndim != 1 or not scores.size or not np.isfinite(scores).all():
        raise ValueError(f"scores of shape {scores.shape} are not N finite numbers")
    lowest, highest = float(scores.min()), float(scores.max())
    if len(scores) <= count:
        return list(range(len(scores)))
    if highest - lowest < _FLAT:
        return pick_evenly(len(scores), count)
    relative = scores.astype(np.float64) / (highest - lowest)
    return sorted(_choose(relative, count, halvings=HALVINGS, stands_out=stands_out).tolist())


def _choose(scores: _Scores, count: int, *, halvings: int, stands_out: float) -> npt.NDArray[np.int64]:
    """Choose `count` of at least as many frames."""
    best = np.argsort(-scores, kind="stable")[:count]
    if count in {1, len(scores)} or not halvings or scores[best].mean() - scores.mean() >= stands_out:
        return best
    middle = len(scores) // 2
    halves = scores[:middle], scores[middle:]
    less, more = count // 2, count - count // 2
    shares = (less, more) if halves[1].max() > halves[0].max() else (more, less)
    first, second = (
        _choose(half, share, halvings=halvings - 1, stands_out=stands_out)
        for half, share in zip(halves, shares, strict=True)
    )
    return np.concatenate([first, second + middle])


def choose_frames(
    embeddings: Embeddings, texts: npt.NDArray[np.float32], count: int, *, apart_ms: float = 0.0
) -> tuple[tuple[int, ...], str]:
    """Choose the frames that fit the best of some texts best, spread over time.

    Args:
        embeddings: Of all frames that can be chosen.
        texts: Vectors of the texts, by the same model; shape (K, D).
        count: Frames to choose; all of them are, if there are fewer.
        apart_ms: Frames that follow another one by less cannot be chosen: equal parts of a video must have equally
            many, and its last chunk, which is shorter, has as many as the others.

    Returns:
        Their times on the video's own clock, in milliseconds, ascending; and how many of how many they are, and how
        far apart, as a clause.
    """
    rows = [0]
    for row in range(1, len(embeddings.pts_ms)):
        if embeddings.pts_ms[row] - embeddings.pts_ms[rows[-1]] >= apart_ms:
            rows.append(row)
    scores, pts_ms = (embeddings.vectors[rows] @ texts.T).max(axis=1), embeddings.pts_ms[rows]
    chosen = choose_adaptively(scores, count)
    ends_ms = np.concatenate([pts_ms[:1], pts_ms[chosen], pts_ms[-1:]])
    gap_s, best_s = float(np.diff(ends_ms).max()) / _MS, float(pts_ms[scores.argmax()]) / _MS
    note = (
        f"{len(chosen)} of {len(pts_ms)} frames chosen by the question, the best of which is at {best_s:.1f} s; "
        f"at most {gap_s:.1f} s without one"
    )
    return tuple((pts_ms[chosen] + embeddings.first_ms).tolist()), note


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevantExtractor(FrameExtractor):
    """Extracts the frames of views that fit what is asked about them best. Thread-safe.

    Attributes:
        embedder: Embeds the frames to choose from, once for all questions on a video, or finds their embeddings.
        embed_texts: Embeds what is asked; many jobs ask the same, so the last ones are kept in memory.
    """

    embedder: VideoEmbedder
    embed_texts: Callable[[tuple[str, ...]], EmbeddedTexts] = field(repr=False)

    @classmethod
    def of(cls, extractor: FrameExtractor, embedder: VideoEmbedder, encoder: Encoder) -> RelevantExtractor:
        """Return an extractor that chooses frames by what is asked, with the options of another one."""
        options = {each.name: getattr(extractor, each.name) for each in fields(FrameExtractor)}
        return cls(**options, embedder=embedder, embed_texts=lru_cache(_TEXTS_IN_MEMORY)(encoder.embed_texts))

    def prepare_asked(self, view: View, info: ObjectInfo | None = None) -> ExtractedVideo:
        """Extract the frame file of a view, whose texts choose the frames, into the cache, unless it is there already.

        Raises:
            VideoError: The video cannot be used; see its code.
            EngineLostError: The encoder dies.
            TransientError: The store is unavailable.
        """
        embedded, texts = self._embed(view, info), self.embed_texts(view.texts)
        times_ms, chosen = choose_frames(
            embedded.embeddings,
            texts.vectors,
            self.sampling.num_frames,
            apart_ms=self._apart_ms(embedded.embeddings.duration_s),
        )
        sampling = with_times(self.sampling, times_ms)
        video = self.prepare(embedded.info.uri, embedded.info, segment=view.segment, sampling=sampling)
        seen, cost = video.provenance, embedded.cost
        longest, most = max(texts.tokens), self.embedder.info.max_tokens
        cut = f"the question has {longest} tokens, of which the image-text model reads the first {most}"
        notes = (chosen, cut if longest > most else "", embedded.embeddings.note, embedded.rewritten, seen.decode_note)
        return replace(
            video,
            provenance=replace(
                seen,
                chosen_ms=",".join(map(str, times_ms)),
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
        return _NEARLY * spec.seconds_per_chunk * _MS / spec.frames_per_chunk

    def _embed(self, view: View, info: ObjectInfo | None) -> EmbeddedVideo:
        try:
            return self.embedder.embed_segment(view.video_uri, view.segment, info)
        except (InferenceError, FrameFileError) as error:
            refused = SamplingRefusedError(
                f"The sampler relevant cannot read the frames of this video: {error.message} Use another sampler."
            )
            refused.fingerprint = info.fingerprint if info else None
            raise refused from error


@contextmanager
def relevant_extraction(
    settings: Settings, extractor: FrameExtractor, spec: EmbeddingSpec, *, files: ObjectStore
) -> Iterator[RelevantExtractor]:
    """Load the encoder, and yield an extractor that chooses frames by what is asked, with the options of another one.

    Raises:
        ModelError: The model cannot be loaded, or has no text encoder.
        ConfigurationError: There are fewer GPUs than processes.
    """
    with closing(open_encoder(settings, read_encoder_info(settings))) as encoder:
        encoder.start()
        embedder = open_embedder(settings, extractor, encoder, encoder.info(), spec=spec, files=files)
        yield RelevantExtractor.of(extractor, embedder, encoder)
