"""Describes videos: embeddings, changes of scene, and the comparison with the banks."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from reelabel.errors import VideoError, VideoMissingError, VideoRefusedError
from tasks.description.cost import DescriptionCost
from tasks.description.described import DescribedVideo, chunks_of, embedded_chunks, scenes_of
from tasks.description.outline import Outline
from tasks.description.pooling import LogitScale, describe_pooled, pool_chunks
from tasks.description.scenes.change import Evidence, SceneAttemptError, SceneChanges, SceneMethodError
from tasks.description.scenes.detector import find
from tasks.description.scenes.footage import ClippedFootage, LazyFootage, open_footage
from tasks.description.scenes.index import look_at_candidates
from tasks.description.scenes.registry import detect_scenes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectInfo
    from tasks.description.embeddings import Embeddings
    from tasks.description.kept import Kept
    from tasks.description.outline import OutlineFiles
    from tasks.description.pooling import EmbeddedBank
    from tasks.description.scene_file import SceneFiles
    from tasks.description.scenes.change import EmbeddedChunk, FrameScores, IndexLook
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.embedding_file import EmbeddingIdentity
    from tasks.embedding.video import EmbeddedVideo, VideoEmbedder


@dataclass(frozen=True, slots=True)
class KeptShard:
    """What is kept together of the videos of a shard; empty for a shard of few videos.

    Attributes:
        identities: What the embeddings of the jobs' videos are asked for by, by job id; of the videos whose version
            is known.
        outlines: By the keys of their embedding files.
        embeddings: By the same keys; None if the outlines are all that is needed.
        read_ms: Milliseconds that it took to read them.
    """

    identities: dict[str, EmbeddingIdentity] = field(default_factory=dict, repr=False)
    outlines: Kept[Outline] | None = None
    embeddings: Kept[Embeddings] | None = None
    read_ms: float = 0.0


NOTHING_KEPT = KeptShard()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a description is made of."""

    info: ObjectInfo
    identity: EmbeddingIdentity
    outline: Outline
    was_cached: bool
    remade: str = ""
    decode_method: str = ""
    cost: DescriptionCost


@dataclass(frozen=True, slots=True, kw_only=True)
class _FoundScenes:
    """Changes of scene.

    Attributes:
        changes: The changes.
        is_lasting: Whether another look into the same video would find them again.
        cost: What the look has cost.
    """

    changes: SceneChanges
    is_lasting: bool = True
    cost: DescriptionCost = field(default_factory=DescriptionCost)


# What finds changes where a method finds too little in a video.
_FALLBACK = "ema"
# Why a method found nothing this time, though it may find something in the same video later.
_PASSING = (SceneAttemptError, VideoMissingError, VideoRefusedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoDescriber:
    """Describes the videos of jobs. Thread-safe.

    Attributes:
        embedder: Embeds their frames.
        scene_files: Keeps the changes of scene that took a look into a video.
        outlines: Keeps the outlines of the videos of a shard together.
        spec: How they are described.
        tags: Bank of tags.
        captions: Bank of captions.
    """

    embedder: VideoEmbedder
    scene_files: SceneFiles
    outlines: OutlineFiles
    spec: DescribeSpec
    tags: EmbeddedBank
    captions: EmbeddedBank
    _needs_video: frozenset[str] = field(default=frozenset({"index", "frames"}), init=False, repr=False)

    def read_kept(self, jobs: Sequence[Job], known: Mapping[str, ObjectInfo]) -> KeptShard:
        """Read what is kept together of the videos of a shard.

        Args:
            jobs: The jobs of the shard.
            known: Versions of their videos by URI, as far as they are known.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        started, embedder = time.perf_counter(), self.embedder
        key = embedder.pack_key(jobs)
        if key is None:
            return NOTHING_KEPT
        dimensions = embedder.info.dimensions
        outlines = self.outlines.read(key, **self._asked, dimensions=dimensions)
        identities = {
            job.job_id: embedder.identity(job, known[job.video_uri]) for job in jobs if job.video_uri in known
        }
        has_all = len(identities) == len(jobs) and all(each.key in outlines.found for each in identities.values())
        embeddings = None if has_all else embedder.packs.read(key, dimensions=dimensions)
        return KeptShard(identities, outlines, embeddings, read_ms=(time.perf_counter() - started) * 1e3)

    def write_kept(self, kept: KeptShard) -> None:
        """Keep what was found out about the videos of a shard, for the next run.

        Raises:
            StoreUnavailableError: The store is unavailable.
        """
        if kept.embeddings:
            self.embedder.packs.write(kept.embeddings)
        if kept.outlines:
            self.outlines.write(kept.outlines)

    def describe_kept(
        self, job: Job, shard_index: int, info: ObjectInfo | None, kept: KeptShard
    ) -> DescribedVideo | None:
        """Describe a job's video by its outline; None if that is not kept."""
        identity = kept.identities.get(job.job_id)
        if info is None or identity is None or kept.outlines is None:
            return None
        outline = kept.outlines.find(identity.key)
        if outline is None:
            return None
        video = _Seen(info=info, identity=identity, outline=outline, was_cached=True, cost=DescriptionCost())
        return self._describe(job, shard_index, video)

    def describe(
        self, job: Job, shard_index: int, info: ObjectInfo | None = None, kept: KeptShard = NOTHING_KEPT
    ) -> DescribedVideo:
        """Describe a job's video.

        Args:
            job: The job.
            shard_index: Its shard.
            info: Size and fingerprint of the video, if known.
            kept: What is kept of the videos of its shard; what it lacks is added.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: The towers die on its frames.
            TransientError: The store or the towers are unavailable.
        """
        embedded = self.embedder.embed(job, info, pack=kept.embeddings)
        outline, scenes = self._outline(job, embedded)
        if kept.outlines and scenes.is_lasting:
            kept.outlines.add(embedded.identity.key, outline)
        video = _Seen(
            info=embedded.info,
            identity=embedded.identity,
            outline=outline,
            was_cached=embedded.was_cached,
            remade=embedded.remade,
            decode_method=embedded.decode_method,
            cost=embedded.cost + scenes.cost,
        )
        return self._describe(job, shard_index, video)

    def _outline(self, job: Job, embedded: EmbeddedVideo) -> tuple[Outline, _FoundScenes]:
        embeddings = embedded.embeddings
        chunks = chunks_of(job, embeddings.duration_s, self.spec)
        by_chunk = embedded_chunks(embeddings, chunks)
        found = self._changes(embedded, by_chunk)
        outline = Outline(
            duration_s=embeddings.duration_s,
            frames=len(embeddings.pts_ms),
            note=embeddings.note,
            pooled=pool_chunks(embeddings, chunks),
            changes=found.changes,
            scenes=scenes_of(found.changes, by_chunk),
        )
        return outline, found

    def _describe(self, job: Job, shard_index: int, video: _Seen) -> DescribedVideo:
        started, outline = time.perf_counter(), video.outline
        described = describe_pooled(
            outline.pooled,
            chunks_of(job, outline.duration_s, self.spec),
            tags=self.tags,
            captions=self.captions,
            top_k=self.spec.top_k,
            method=self.spec.method,
            logits=self._logits,
        )
        return DescribedVideo(
            job=job,
            fingerprint=video.info.fingerprint,
            embedding_key=video.identity.key,
            dimensions=video.identity.dimensions,
            shard_index=shard_index,
            duration_s=outline.duration_s,
            frames=outline.frames,
            frame_pixels=self.embedder.frame_pixels,
            description=described,
            changes=outline.changes,
            scenes=outline.scenes,
            was_cached=video.was_cached,
            remade=video.remade,
            decode_method=video.decode_method,
            decode_note="; ".join(filter(None, [video.info.note, outline.note, video.remade])),
            cost=replace(video.cost, describe_ms=(time.perf_counter() - started) * 1e3),
        )

    @property
    def _logits(self) -> LogitScale | None:
        scale, bias = self.embedder.info.scale, self.embedder.info.bias
        return None if scale is None else LogitScale(scale=scale, bias=bias)

    @property
    def _asked(self) -> dict[str, Any]:
        return {"method": self.spec.scene_method, "threshold": self.spec.scene_threshold}

    def _changes(self, embedded: EmbeddedVideo, chunks: tuple[EmbeddedChunk, ...]) -> _FoundScenes:
        """Find the changes of scene, or read those that an earlier run has found in the video."""
        started, key = time.perf_counter(), embedded.identity.key
        if not find(self.spec.scene_method).needs & self._needs_video:
            changes = detect_scenes(
                self.spec.scene_method, Evidence(chunks=chunks), threshold=self.spec.scene_threshold
            )
            found = _FoundScenes(changes=changes)
        elif known := self.scene_files.find(key, **self._asked):
            found = _FoundScenes(changes=known)
        else:
            found = self._look(embedded, chunks)
            if found.is_lasting:
                self.scene_files.write(found.changes, key, **self._asked)
        return replace(found, cost=replace(found.cost, scenes_ms=(time.perf_counter() - started) * 1e3))

    def _look(self, embedded: EmbeddedVideo, chunks: tuple[EmbeddedChunk, ...]) -> _FoundScenes:
        """Look into the video; where that fails, the embeddings alone decide."""
        extractor, info, segment = self.embedder.extractor, embedded.info, embedded.identity.segment
        is_lasting = True
        with ExitStack() as stack:
            opened = open_footage(
                extractor.objects,
                info,
                pool=extractor.pool,
                limits=extractor.limits,
                allow_roots=extractor.allow_roots,
            )
            lazy = LazyFootage(partial(stack.enter_context, opened))
            footage = ClippedFootage(lazy, segment)
            evidence = Evidence(
                footage=footage,
                look=partial(self._look_once, info, footage),
                keep_scores=partial(self._score_once, info, segment),
                chunks=chunks,
            )
            try:
                found = detect_scenes(self.spec.scene_method, evidence, threshold=self.spec.scene_threshold)
            except (SceneMethodError, VideoError) as error:
                found = replace(detect_scenes(_FALLBACK, Evidence(chunks=chunks)), note=error.message)
                is_lasting = not isinstance(error, _PASSING)
        if lazy.inner is None:
            return _FoundScenes(changes=found, is_lasting=is_lasting)
        cost = DescriptionCost(frames_decoded=lazy.inner.frames_decoded, bytes_fetched=lazy.inner.bytes_read)
        return _FoundScenes(changes=found, is_lasting=is_lasting, cost=cost)

    def _score_once(
        self, info: ObjectInfo, segment: Segment, method: str, score: Callable[[], FrameScores]
    ) -> FrameScores:
        """Score every frame by a method, unless an earlier run has, for whatever threshold."""
        found = self.scene_files.find_scores(info, segment, method)
        if found is None:
            found = score()
            self.scene_files.write_scores(found, info, segment, method)
        return found

    def _look_once(self, info: ObjectInfo, footage: ClippedFootage) -> IndexLook:
        """Look at the candidates of the index, unless an earlier run has, by whatever threshold."""
        found = self.scene_files.find_look(info, footage.segment)
        if found is None:
            found = look_at_candidates(footage)
            self.scene_files.write_look(found, info, footage.segment)
        return found
