"""Describes videos: embeddings, scene changes, and the comparison with the banks."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from reelabel.digest import json_digest
from reelabel.errors import (
    ObjectError,
    SealError,
    VideoError,
    VideoMissingError,
    VideoRefusedError,
    VideoUnavailableError,
)
from reelabel.frames.cache_key import decoder_versions
from reelabel.sources.object_info import unsigned_uri
from tasks.description.chunks import cut_chunks, embed_chunks
from tasks.description.cost import DescriptionCost
from tasks.description.described import DescribedVideo, scenes_of
from tasks.description.embeddings import Cuts
from tasks.description.pooling import LogitScale, describe_chunks
from tasks.description.scenes.change import SceneMethodError
from tasks.description.scenes.cuts import FINDER_VERSION, find_cuts
from tasks.description.scenes.detect import detect_scenes
from tasks.description.scenes.footage import open_footage
from tasks.embedding.video import EmbeddedVideo
from tasks.frame_cache.sealed_files import SealedFiles

if TYPE_CHECKING:
    from reelabel.segment import Segment
    from reelabel.sources.object_store import ObjectInfo
    from tasks.description.pooling import TextBank
    from tasks.description.scenes.change import Average
    from tasks.domain import DescribeSpec, Job
    from tasks.embedding.vector_file import ShardVectors
    from tasks.embedding.video import VideoEmbedder

_VERSION = 1
# The video may be back later, so nothing is cached.
_GONE_FOR_NOW = (VideoMissingError, VideoRefusedError, VideoUnavailableError)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutFiles(SealedFiles):
    """Cached cuts of single videos, next to their frames, so that no later run decodes for them.

    They do not depend on the model or the threshold. An invalid file counts as missing.
    """

    def find(self, info: ObjectInfo, segment: Segment) -> Cuts | None:
        """Look up the cuts of a segment of a video; None if they must be detected."""
        try:
            return Cuts.of_json(json.loads(bytes(self.read_sealed(_cuts_key(info, segment)))))
        except (ObjectError, SealError, ValueError, KeyError, TypeError):
            return None

    def write(self, cuts: Cuts, info: ObjectInfo, segment: Segment) -> None:
        """Write the cuts of a segment of a video, replacing an invalid file."""
        self.replace_sealed(_cuts_key(info, segment), json.dumps(asdict(cuts)).encode())


def _cuts_key(info: ObjectInfo, segment: Segment) -> str:
    video = {"uri": unsigned_uri(info.uri), "fingerprint": info.fingerprint, "segment_s": list(segment)}
    digest = json_digest(video | {"cuts": FINDER_VERSION, "decoder": decoder_versions()})
    return f"v{_VERSION}/{digest[:2]}/{digest}.scenes"


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoDescriber:
    """Describes the videos of jobs. Thread-safe."""

    embedder: VideoEmbedder
    cuts: CutFiles
    spec: DescribeSpec
    tags: TextBank
    captions: TextBank

    def describe_stored(
        self, job: Job, shard_index: int, info: ObjectInfo, shard: ShardVectors
    ) -> DescribedVideo | None:
        """Describe a job's video from the file of its shard; None if the video or its cuts are not in it."""
        video = self._stored(job, info, shard)
        if video is None or (self._needs_cuts and video.embeddings.cuts is None):
            return None
        shard.put(video.identity.key, video.embeddings)
        return self._describe(job, shard_index, video, cuts=video.embeddings.cuts)

    def describe(
        self,
        job: Job,
        shard_index: int,
        info: ObjectInfo | None = None,
        shard: ShardVectors | None = None,
        average: Average | None = None,
    ) -> DescribedVideo:
        """Describe a job's video, whose version is `info` if it is known.

        Vectors that are not in `shard`, those of its shard's videos, are added. `average` is the moving average after
        the previous part of a stream; see `detect_scenes`.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: Its frames crash the encoder.
            TransientError: The store or the encoder is unavailable.
        """
        video = (self._stored(job, info, shard) if info and shard else None) or self.embedder.embed(job, info)
        started = time.perf_counter()
        cuts, cost = video.embeddings.cuts, video.cost
        if self._needs_cuts and cuts is None:
            try:
                cuts, detection = self._find_cuts(video.info, video.identity.segment)
            except _GONE_FOR_NOW as error:
                cuts = Cuts(candidates=None, note=error.message)
            else:
                cost += replace(detection, scenes_ms=(time.perf_counter() - started) * 1e3)
                video = replace(video, embeddings=replace(video.embeddings, cuts=cuts))
        if shard:
            shard.put(video.identity.key, video.embeddings)
        return self._describe(job, shard_index, replace(video, cost=cost), cuts=cuts, average=average)

    @property
    def _needs_cuts(self) -> bool:
        return self.spec.scene_method == "auto"

    def _stored(self, job: Job, info: ObjectInfo, shard: ShardVectors) -> EmbeddedVideo | None:
        identity = self.embedder.identity(job, info)
        found = shard.found.get(identity.key)
        if found is None or found.vectors.shape[1] != identity.dimensions:
            return None
        return EmbeddedVideo(info=info, identity=identity, embeddings=found, was_cached=True, cost=DescriptionCost())

    def _find_cuts(self, info: ObjectInfo, segment: Segment) -> tuple[Cuts, DescriptionCost]:
        """Return the cuts of a video, cached or detected now, and their cost."""
        cuts, footage, extractor = self.cuts.find(info, segment), None, self.embedder.extractor
        if cuts:
            return cuts, DescriptionCost()
        try:
            with open_footage(
                extractor.objects, info, pool=extractor.pool, limits=extractor.limits, segment=segment
            ) as footage:
                cuts = find_cuts(footage)
        except _GONE_FOR_NOW:
            raise
        except (SceneMethodError, VideoError) as error:
            cuts = Cuts(candidates=None, note=error.message)
        self.cuts.write(cuts, info, segment)
        if footage is None:
            return cuts, DescriptionCost()
        return cuts, DescriptionCost(frames_decoded=footage.frames_decoded, bytes_fetched=footage.bytes_read)

    def _describe(
        self,
        job: Job,
        shard_index: int,
        video: EmbeddedVideo,
        *,
        cuts: Cuts | None,
        average: Average | None = None,
    ) -> DescribedVideo:
        """Compute a description from vectors and cuts; reads neither video nor model."""
        started, spec, embeddings, encoder = time.perf_counter(), self.spec, video.embeddings, self.embedder.info
        empty = cut_chunks(embeddings.duration_s, chunk_s=spec.seconds_per_chunk, start_s=job.start_s or 0.0)
        chunks = embed_chunks(empty, embeddings)
        changes = detect_scenes(spec.scene_method, chunks, threshold=spec.scene_threshold, cuts=cuts, average=average)
        scenes = scenes_of(changes, chunks)
        detected = time.perf_counter()
        described = describe_chunks(
            chunks,
            tags=self.tags,
            captions=self.captions,
            top_k=spec.top_k,
            method=spec.method,
            logits=None if encoder.scale is None else LogitScale(scale=encoder.scale, bias=encoder.bias),
        )
        ended = time.perf_counter()
        cost = DescriptionCost(scenes_ms=(detected - started) * 1e3, describe_ms=(ended - detected) * 1e3)
        return DescribedVideo(
            job=job,
            fingerprint=video.info.fingerprint,
            embedding_key=video.identity.key,
            dimensions=video.identity.dimensions,
            shard_index=shard_index,
            duration_s=embeddings.duration_s,
            frames=len(embeddings.pts_ms),
            frame_pixels=self.embedder.frame_pixels,
            description=described,
            changes=changes,
            pts_ms=embeddings.pts_ms,
            scenes=scenes,
            was_cached=video.was_cached,
            rewritten=video.rewritten,
            decode_method=video.decode_method,
            decode_note="; ".join(filter(None, [video.info.note, embeddings.note, video.rewritten])),
            cost=video.cost + cost,
        )
