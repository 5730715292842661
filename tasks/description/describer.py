"""Describes videos: embeddings, changes of scene, and the comparison with the banks."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from reelabel.errors import VideoError
from tasks.description.cost import DescriptionCost
from tasks.description.described import DescribedVideo, chunks_of, describe_video, embedded_chunks, scenes_of
from tasks.description.pooling import LogitScale
from tasks.description.scenes.change import Evidence, SceneChanges, SceneMethodError
from tasks.description.scenes.detector import find
from tasks.description.scenes.footage import ClippedFootage, RememberedFootage, open_footage
from tasks.description.scenes.registry import detect_scenes

if TYPE_CHECKING:
    from reelabel.sources.object_store import ObjectInfo
    from tasks.description.pooling import EmbeddedBank
    from tasks.description.scene_file import SceneFiles
    from tasks.description.scenes.change import EmbeddedChunk
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.video import EmbeddedVideo, VideoEmbedder

# What finds changes where a method finds too little in a video.
_FALLBACK = "ema"


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoDescriber:
    """Describes the videos of jobs. Thread-safe.

    Attributes:
        embedder: Embeds their frames.
        scene_files: Keeps the changes of scene that took a look into a video.
        spec: How they are described.
        tags: Bank of tags.
        captions: Bank of captions.
    """

    embedder: VideoEmbedder
    scene_files: SceneFiles
    spec: DescribeSpec
    tags: EmbeddedBank
    captions: EmbeddedBank
    _needs_video: frozenset[str] = field(default=frozenset({"index", "frames"}), init=False, repr=False)

    def describe(self, job: Job, shard_index: int, info: ObjectInfo | None = None) -> DescribedVideo:
        """Describe a job's video.

        Args:
            job: The job.
            shard_index: Its shard.
            info: Size and fingerprint of the video, if known.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: The towers die on its frames.
            TransientError: The store or the towers are unavailable.
        """
        embedded = self.embedder.embed(job, info)
        embeddings = embedded.embeddings
        chunks = chunks_of(job, embeddings, self.spec)
        by_chunk = embedded_chunks(embeddings, chunks)
        changes, cost = self._changes(embedded, by_chunk)
        started = time.perf_counter()
        described = describe_video(
            embeddings, chunks, tags=self.tags, captions=self.captions, spec=self.spec, logits=self._logits
        )
        scenes = scenes_of(changes, by_chunk)
        more = DescriptionCost(describe_ms=(time.perf_counter() - started) * 1e3)
        return DescribedVideo(
            job=job,
            fingerprint=embedded.info.fingerprint,
            embedding_key=embedded.identity.key,
            dimensions=embedded.identity.dimensions,
            shard_index=shard_index,
            duration_s=embeddings.duration_s,
            frames=len(embeddings.pts_ms),
            frame_pixels=self.embedder.frame_pixels,
            description=described,
            changes=changes,
            scenes=scenes,
            was_cached=embedded.was_cached,
            remade=embedded.remade,
            decode_method=embedded.decode_method,
            decode_note="; ".join(filter(None, [embedded.info.note, embeddings.note, embedded.remade])),
            cost=embedded.cost + cost + more,
        )

    @property
    def _logits(self) -> LogitScale | None:
        scale, bias = self.embedder.info.scale, self.embedder.info.bias
        return None if scale is None else LogitScale(scale=scale, bias=bias)

    def _changes(
        self, embedded: EmbeddedVideo, chunks: tuple[EmbeddedChunk, ...]
    ) -> tuple[SceneChanges, DescriptionCost]:
        """Find the changes of scene, or read those that an earlier run has found in the video."""
        started = time.perf_counter()
        method, threshold = self.spec.scene_method, self.spec.scene_threshold
        detect = partial(detect_scenes, method, threshold=threshold)
        if not find(method).needs & self._needs_video:
            found = detect(Evidence(chunks=chunks))
            return found, DescriptionCost(scenes_ms=(time.perf_counter() - started) * 1e3)
        kept = partial(self.scene_files.find, embedded.identity.key, method=method, threshold=threshold)
        if known := kept():
            return known, DescriptionCost(scenes_ms=(time.perf_counter() - started) * 1e3)
        found, cost = self._look(embedded, chunks)
        self.scene_files.write(found, embedded.identity.key, method=method, threshold=threshold)
        return found, replace(cost, scenes_ms=(time.perf_counter() - started) * 1e3)

    def _look(self, embedded: EmbeddedVideo, chunks: tuple[EmbeddedChunk, ...]) -> tuple[SceneChanges, DescriptionCost]:
        """Look into the video; where that fails, the embeddings alone decide."""
        extractor, info, segment = self.embedder.extractor, embedded.info, embedded.identity.segment
        with ExitStack() as stack:
            opened = open_footage(
                extractor.objects,
                info,
                pool=extractor.pool,
                limits=extractor.limits,
                allow_roots=extractor.allow_roots,
            )
            before = self.scene_files.find_looked(info, segment)
            footage = RememberedFootage(partial(stack.enter_context, opened), before)
            evidence = Evidence(footage=ClippedFootage(footage, segment), chunks=chunks)
            try:
                found = detect_scenes(self.spec.scene_method, evidence, threshold=self.spec.scene_threshold)
            except (SceneMethodError, VideoError) as error:
                found = replace(detect_scenes(_FALLBACK, Evidence(chunks=chunks)), note=error.message)
        if footage.inner is None:
            return found, DescriptionCost()
        if footage.looked.thumbnails is not before.thumbnails:
            self.scene_files.write_looked(footage.looked, info, segment)
        inner = footage.inner
        return found, DescriptionCost(frames_decoded=inner.frames_decoded, bytes_fetched=inner.bytes_read)
