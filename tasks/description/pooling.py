"""Tags and captions of a video's chunks, and of the video.

A chunk's vector is the normalised mean of its frames' vectors. Its scores are the cosines with a bank. A video's
scores are the means over all its chunks, weighted by their lengths. This corrects the method `published`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from pydantic import Field

from tasks.description.embeddings import normalize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tasks.description.chunks import Chunk, EmbeddedChunk

Method = Literal["default", "published"]
DEFAULT_TOP_K = 5
_MOST_LOGIT = 700.0  # its exponential is still finite


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitScale:
    """Turns a cosine into a logit, as in the model's training."""

    scale: float  # factor of the cosine, already exponentiated
    bias: float | None = None  # added to it; None if the model has none, like CLIP, whose logits compare only texts

    def probability(self, cosine: float) -> float | None:
        """Return the probability that a text fits (SigLIP's sigmoid); None for a model without a bias."""
        if self.bias is None:
            return None
        logit = min(max(self.scale * cosine + self.bias, -_MOST_LOGIT), _MOST_LOGIT)
        return 1 / (1 + math.exp(-logit))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextBank:
    """K texts with their vectors."""

    texts: tuple[str, ...] = field(repr=False)
    vectors: npt.NDArray[np.float32] = field(repr=False)  # L2-normalised; shape (K, D), float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredText:
    """A text of a bank with its score, as in the rows and in the service's answers."""

    text: Annotated[str, Field(description="Text in the bank.")]
    score: Annotated[float, Field(description="Mean cosine with the frames.")]
    probability: Annotated[float | None, Field(description="Sigmoid of the logit, if the model has one.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkDescription:
    """Tags and caption of a chunk; without frames, it has none."""

    chunk: Chunk
    frames: int  # number of its frames
    tags: tuple[ScoredText, ...] = ()  # best first
    caption: ScoredText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    tags: tuple[ScoredText, ...]  # best first
    caption: ScoredText | None  # None without frames, or without a bank of captions
    chunks: tuple[ChunkDescription, ...]


def describe_chunks(
    chunks: Sequence[EmbeddedChunk],
    *,
    tags: TextBank,
    captions: TextBank,
    top_k: int = DEFAULT_TOP_K,
    method: Method = "default",
    logits: LogitScale | None = None,
) -> Description:
    """Describe a video by its chunks, adjacent and at least one; reads neither video nor model.

    Each chunk and the video get `top_k` tags. The method `published` repeats the published one exactly.

    Raises:
        ValueError: A bank's vectors have another size.
    """
    size = chunks[0].vectors.shape[1]
    for bank in (tags, captions):
        if bank.vectors.shape[1] != size:
            raise ValueError(f"a bank of size {bank.vectors.shape[1]} for vectors of {size}")
    pick = _Picker(top_k=top_k, logits=logits)
    filled = [each for each in chunks if len(each.vectors)]
    vectors = np.array([pool(each.vectors) for each in filled], np.float32).reshape(len(filled), size)
    tag_scores, caption_scores = vectors @ tags.vectors.T, vectors @ captions.vectors.T
    scores, none = iter(zip(tag_scores, caption_scores, strict=True)), np.zeros(0, np.float32)
    described = []
    for each in chunks:
        of_tags, of_captions = next(scores) if len(each.vectors) else (none, none)
        best, caption = pick.best(tags, of_tags), pick.first(captions, of_captions)
        described.append(ChunkDescription(chunk=each.chunk, frames=len(each.vectors), tags=best, caption=caption))
    parts = tuple(described)
    if not filled:
        return Description(tags=(), caption=None, chunks=parts)
    if method == "published":
        best_tags, best_caption = _published(tag_scores, caption_scores, top_k=top_k)
        return Description(
            tags=tuple(pick.scored(tags, index, score) for index, score in best_tags),
            caption=pick.scored(captions, *best_caption) if best_caption else None,
            chunks=parts,
        )
    if len(filled) == 1:
        [one] = (part for part in parts if part.frames)
        return Description(tags=one.tags, caption=one.caption, chunks=parts)
    weights = [each.chunk.duration_s for each in filled]
    return Description(
        tags=pick.best(tags, mean_scores(tag_scores, weights)),
        caption=pick.first(captions, mean_scores(caption_scores, weights)),
        chunks=parts,
    )


def _published(
    tags: npt.NDArray[np.float32], captions: npt.NDArray[np.float32], *, top_k: int
) -> tuple[list[tuple[int, float]], tuple[int, float] | None]:
    """Return index and score of the best tags, and of the best caption, as the published method does.

    Source: Anyscale's tutorial of video analysis on Ray Serve. A tag's score is the mean over only those chunks that
    list it among their best, which favours rare tags; the caption is the best one of any chunk. `tags` and `captions`
    are scores by chunk, of shapes (C, K) and (C, L).
    """
    by_tag: defaultdict[int, list[float]] = defaultdict(list)
    for scores in tags:
        for index in rank(scores, top_k):
            by_tag[index].append(float(scores[index]))
    means = sorted(((index, float(np.mean(scores))) for index, scores in by_tag.items()), key=lambda tag: -tag[1])
    best = (int(captions.argmax()) % captions.shape[1], float(captions.max())) if captions.size else None
    return means[:top_k], best


def pool(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the normalised mean of vectors (N, D), N >= 1; shape (D,)."""
    return normalize(vectors.mean(axis=0))


def mean_scores(scores: npt.NDArray[np.float32], durations_s: Sequence[float]) -> npt.NDArray[np.float64]:
    """Average scores (C, K) over chunks, weighted by their lengths; shape (K,)."""
    weights = np.asarray(durations_s, np.float64)
    # Not np.average, whose checks dominate for a video of a few chunks.
    found: npt.NDArray[np.float64] = weights @ scores.astype(np.float64) / weights.sum()
    return found


def rank(scores: npt.NDArray[np.floating], count: int) -> list[int]:
    """Return the indices of the highest scores, best first; the earlier one of equal scores."""
    order: list[int] = np.argsort(-scores, kind="stable")[:count].tolist()
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picker:
    top_k: int
    logits: LogitScale | None

    def scored(self, bank: TextBank, index: int, score: float) -> ScoredText:
        probability = self.logits.probability(score) if self.logits else None
        return ScoredText(text=bank.texts[index], score=float(score), probability=probability)

    def best(self, bank: TextBank, scores: npt.NDArray[np.floating]) -> tuple[ScoredText, ...]:
        return tuple(self.scored(bank, index, scores[index]) for index in rank(scores, self.top_k))

    def first(self, bank: TextBank, scores: npt.NDArray[np.floating]) -> ScoredText | None:
        return next((self.scored(bank, index, scores[index]) for index in rank(scores, 1)), None)
