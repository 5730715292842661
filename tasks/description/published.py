"""Tags and caption of the published method, exactly, so that the corrected ones can be compared with them.

Source: Anyscale's tutorial of video analysis on Ray Serve. A tag's score is the mean over only those chunks in whose
best ones it is, which favours rare tags; the caption is the best one of any chunk. The changes of scene of that method
are the scene detector `published`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tasks.description.embeddings import normalize

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


class PublishedDescription(NamedTuple):
    """What the published method finds.

    Attributes:
        tags: Index and score of the best tags, best first.
        caption: Index and score of the best caption of any chunk; None without chunks or captions.
    """

    tags: tuple[tuple[int, float], ...]
    caption: tuple[int, float] | None


def describe_published(
    vectors: Sequence[npt.NDArray[np.float32]],
    *,
    tags: npt.NDArray[np.float32],
    captions: npt.NDArray[np.float32],
    top_k: int = 5,
) -> PublishedDescription:
    """Describe a video.

    Args:
        vectors: Of each chunk's frames; each of shape (T, D), T >= 1.
        tags: Bank of tags; shape (K, D).
        captions: Bank of captions; shape (L, D).
        top_k: Tags per chunk, and per video.
    """
    by_tag: defaultdict[int, list[float]] = defaultdict(list)
    best: tuple[int, float] | None = None
    for frames in vectors:
        pooled = normalize(frames.mean(axis=0))
        scores = tags @ pooled
        for index in np.argsort(-scores, kind="stable")[:top_k].tolist():
            by_tag[index].append(float(scores[index]))
        fits = captions @ pooled
        if fits.size and (best is None or fits.max() > best[1]):
            best = int(fits.argmax()), float(fits.max())
    means = sorted(((index, float(np.mean(scores))) for index, scores in by_tag.items()), key=lambda tag: -tag[1])
    return PublishedDescription(tuple(means[:top_k]), best)
