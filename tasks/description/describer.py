"""Describes videos: embeddings, changes of scene, and the comparison with the banks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from reelabel.errors import VideoMissingError, VideoRefusedError
from tasks.description.cost import DescriptionCost
from tasks.description.described import DescribedVideo, chunks_of, embedded_chunks, scenes_of
from tasks.description.outline import Outline
from tasks.description.pooling import LogitScale, describe_pooled, pool_chunks
from tasks.description.scenes.cuts import find_cuts
from tasks.description.scenes.detect import detect_scenes
from tasks.description.scenes.footage import open_footage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectInfo
    from tasks.description.embeddings import Embeddings
    from tasks.description.kept import Kept
    from tasks.description.outline import OutlineFiles
    from tasks.description.pooling import EmbeddedBank
    from tasks.description.scene_file import SceneFiles
    from tasks.description.scenes.change import EmbeddedChunk, SceneChanges
    from tasks.description.scenes.cuts import Cuts
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


@dataclass(slots=True, kw_only=True)
class _CutFinder:
    """Finds the cuts of one video, unless an earlier run has.

    Attributes:
        cost: What it has cost.
        is_lasting: Whether it would find the same in the same video later.
    """

    embedder: VideoEmbedder
    scene_files: SceneFiles
    embedded: EmbeddedVideo
    cost: DescriptionCost = field(default_factory=DescriptionCost)
    is_lasting: bool = True

    def find(self) -> Cuts:
        """Find them; raises as `tasks.description.scenes.cuts.find_cuts`."""
        info, segment = self.embedded.info, self.embedded.identity.segment
        cuts = self.scene_files.find_cuts(info, segment)
        if cuts is None:
            try:
                cuts = self._look(info, segment)
            except (VideoMissingError, VideoRefusedError):
                self.is_lasting = False
                raise
            self.scene_files.write_cuts(cuts, info, segment)
        return cuts

    def _look(self, info: ObjectInfo, segment: Segment) -> Cuts:
        extractor = self.embedder.extractor
        with open_footage(
            extractor.objects,
            info,
            pool=extractor.pool,
            limits=extractor.limits,
            segment=segment,
            allow_roots=extractor.allow_roots,
        ) as footage:
            try:
                return find_cuts(footage)
            finally:
                self.cost = DescriptionCost(frames_decoded=footage.frames_decoded, bytes_fetched=footage.bytes_read)


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
            InferenceError: The encoder dies on its frames.
            TransientError: The store or the encoder is unavailable.
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
        started, key, spec = time.perf_counter(), embedded.identity.key, self.spec
        if spec.scene_method != "auto":
            changes = detect_scenes(spec.scene_method, chunks, threshold=spec.scene_threshold)
            found = _FoundScenes(changes=changes)
        elif known := self.scene_files.find(key, **self._asked):
            found = _FoundScenes(changes=known)
        else:
            finder = _CutFinder(embedder=self.embedder, scene_files=self.scene_files, embedded=embedded)
            changes = detect_scenes("auto", chunks, threshold=spec.scene_threshold, find_cuts=finder.find)
            found = _FoundScenes(changes=changes, is_lasting=finder.is_lasting, cost=finder.cost)
            if found.is_lasting:
                self.scene_files.write(changes, key, **self._asked)
        return replace(found, cost=replace(found.cost, scenes_ms=(time.perf_counter() - started) * 1e3))
