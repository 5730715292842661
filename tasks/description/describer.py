"""Describes videos: embeddings, changes of scene, and the comparison with the banks."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reelabel.errors import VideoError
from tasks.description.cost import DescriptionCost
from tasks.description.described import DescribedVideo, chunks_of, describe_video, embedded_chunks, scenes_of
from tasks.description.pooling import LogitScale
from tasks.description.scenes.change import Evidence, SceneChanges, SceneMethodError
from tasks.description.scenes.detector import find
from tasks.description.scenes.footage import ClippedFootage, RememberedFootage, open_footage
from tasks.description.scenes.registry import detect_scenes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reelabel.sources.object_store import ObjectInfo
    from tasks.description.embeddings import Embeddings
    from tasks.description.kept import Kept
    from tasks.description.pooling import EmbeddedBank
    from tasks.description.scene_file import SceneFiles
    from tasks.description.scenes.change import EmbeddedChunk
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.video import EmbeddedVideo, VideoEmbedder


@dataclass(frozen=True, slots=True)
class KeptShard:
    """What is kept together of the videos of a shard; empty for a shard of few videos.

    Attributes:
        embeddings: By the keys of their embedding files.
        changes: Their changes of scene, by the same keys; None if these are found by the embeddings alone.
        read_ms: Milliseconds that it took to read them.
    """

    embeddings: Kept[Embeddings] | None = None
    changes: Kept[SceneChanges] | None = None
    read_ms: float = 0.0


NOTHING_KEPT = KeptShard()
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

    def read_kept(self, jobs: Sequence[Job]) -> KeptShard:
        """Read what is kept together of the videos of a shard.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        started = time.perf_counter()
        embeddings, changes = self.embedder.read_pack(jobs), None
        if embeddings and self._looks:
            changes = self.scene_files.read_pack(embeddings.key, **self._asked)
        return KeptShard(embeddings, changes, read_ms=(time.perf_counter() - started) * 1e3)

    def find_kept(self, job: Job, info: ObjectInfo | None, kept: KeptShard) -> EmbeddedVideo | None:
        """Return the embeddings of a job's video if it can be described without reading anything else."""
        if info is None or kept.embeddings is None:
            return None
        found = self.embedder.find_kept(job, info, kept.embeddings)
        needs_changes = found and kept.changes is not None and found.identity.key not in kept.changes.found
        return None if needs_changes else found

    def write_kept(self, kept: KeptShard) -> None:
        """Keep what was found out about the videos of a shard, for the next run.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        if kept.embeddings:
            self.embedder.packs.write(kept.embeddings)
        if kept.changes:
            self.scene_files.write_pack(kept.changes)

    def describe(
        self,
        job: Job,
        shard_index: int,
        info: ObjectInfo | None = None,
        kept: KeptShard = NOTHING_KEPT,
        embedded: EmbeddedVideo | None = None,
    ) -> DescribedVideo:
        """Describe a job's video.

        Args:
            job: The job.
            shard_index: Its shard.
            info: Size and fingerprint of the video, if known.
            kept: What is kept of the videos of its shard; what it lacks is added.
            embedded: Its embeddings, if they are at hand.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: The towers die on its frames.
            TransientError: The store or the towers are unavailable.
        """
        embedded = embedded or self.embedder.embed(job, info, pack=kept.embeddings)
        embeddings = embedded.embeddings
        chunks = chunks_of(job, embeddings, self.spec)
        by_chunk = embedded_chunks(embeddings, chunks)
        changes, cost = self._changes(embedded, by_chunk, kept.changes)
        started = time.perf_counter()
        described = describe_video(
            embeddings, chunks, tags=self.tags, captions=self.captions, spec=self.spec, logits=self._logits
        )
        scenes = scenes_of(changes, by_chunk)
        describe_ms = (time.perf_counter() - started) * 1e3
        return DescribedVideo(
            job=job,
            fingerprint=embedded.info.fingerprint,
            embedding_key=embedded.identity.key,
            dimensions=embedded.identity.dimensions,
            shard_index=shard_index,
            duration_s=embeddings.duration_s,
            frames=len(embeddings.pts_ms),
            description=described,
            changes=changes,
            scenes=scenes,
            was_cached=embedded.was_cached,
            remade=embedded.remade,
            decode_method=embedded.decode_method,
            decode_note="; ".join(filter(None, [embedded.info.note, embeddings.note, embedded.remade])),
            cost=replace(embedded.cost + cost, describe_ms=describe_ms),
        )

    @property
    def _logits(self) -> LogitScale | None:
        scale, bias = self.embedder.info.scale, self.embedder.info.bias
        return None if scale is None else LogitScale(scale=scale, bias=bias)

    @property
    def _looks(self) -> bool:
        """Whether changes of scene are looked for in the video, and not by its embeddings alone."""
        return bool(find(self.spec.scene_method).needs & self._needs_video)

    @property
    def _asked(self) -> dict[str, Any]:
        return {"method": self.spec.scene_method, "threshold": self.spec.scene_threshold}

    def _changes(
        self, embedded: EmbeddedVideo, chunks: tuple[EmbeddedChunk, ...], kept: Kept[SceneChanges] | None
    ) -> tuple[SceneChanges, DescriptionCost]:
        """Find the changes of scene, or take those that an earlier run has found in the video."""
        started, cost = time.perf_counter(), DescriptionCost()
        key = embedded.identity.key
        if not self._looks:
            found = detect_scenes(self.spec.scene_method, Evidence(chunks=chunks), threshold=self.spec.scene_threshold)
        else:
            known = (kept.find(key) if kept else None) or self.scene_files.find(key, **self._asked)
            if known:
                found = known
            else:
                found, cost = self._look(embedded, chunks)
                self.scene_files.write(found, key, **self._asked)
            if kept:
                kept.add(key, found)
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
