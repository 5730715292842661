"""Embeds a video: reads its vectors from their file, or computes them piece by piece."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING

import numpy as np

from infra.prefetch import prefetch
from infra.temporary import temporary_folder
from reelabel.errors import (
    FrameFileError,
    NoFramesError,
    ObjectMissingError,
    SamplingRefusedError,
    VideoError,
    VideoUnreadableError,
)
from reelabel.frames.frame_file import is_sparse, load_frames, with_pixels
from reelabel.segment import WHOLE, Segment
from reelabel.sources.download_cache import DownloadCache
from reelabel.sources.object_info import ObjectInfo
from reelabel.sources.opened import stat_video
from reelabel.waiting import raise_if_abandoned
from tasks.description.cost import DescriptionCost
from tasks.description.embeddings import Embeddings
from tasks.embedding.batches import EmbeddedFrames, FrameBatcher
from tasks.embedding.pieces import Piece, cut_pieces, first_chunk, most_chunks
from tasks.embedding.vector_file import LEAST_VIDEOS, VectorCache, VectorKey, as_read_back
from tasks.frame_cache.extractor import ExtractedVideo, FrameExtractor, KeyedLocks
from tasks.frame_cache.look import look_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from infra.settings import Settings
    from reelabel.result import Frames, Selection
    from reelabel.sources.object_store import ObjectStore
    from reelabel_engine.protocol import EncoderInfo
    from tasks.domain import EmbeddingSpec, Job
    from tasks.embedding.encoder import Encoder

_MS = 1000
_ENDED = (NoFramesError, SamplingRefusedError, VideoUnreadableError)
_KEPT_FAULTS = 1024
_CUT = "cut short"  # in the note of a truncated file


def frame_pixels(info: EncoderInfo) -> int:
    """Return the maximum pixels of a frame: twice the model's square, so that no side of a wide one is enlarged."""
    return 2 * info.size_px**2


def identity_of(info: ObjectInfo, segment: Segment, *, spec: EmbeddingSpec, encoder: EncoderInfo) -> VectorKey:
    return VectorKey(
        source_uri=info.uri,
        fingerprint=info.fingerprint,
        sampling=spec.sampling(max_pixels=frame_pixels(encoder)),
        segment=segment,
        model=spec.model,
        dimensions=encoder.dimensions,
        size_px=encoder.size_px,
        versions=encoder.versions,
        chunk_s=spec.seconds_per_chunk,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedVideo:
    """The embeddings of one video, and their cost."""

    info: ObjectInfo  # the version of the video
    identity: VectorKey  # the request for its embedding file
    embeddings: Embeddings  # of its frames
    was_cached: bool  # whether the embedding file existed
    rewritten: str = ""  # cached files that were invalid and rewritten, and why; empty if none
    decode_method: str = ""  # how its frames were located; empty if they were cached
    cost: DescriptionCost  # cost in this run


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoEmbedder:
    """Embeds videos. Thread-safe."""

    extractor: FrameExtractor
    cache: VectorCache
    frames: FrameBatcher
    spec: EmbeddingSpec
    info: EncoderInfo
    locks: KeyedLocks = field(default_factory=lambda: KeyedLocks(keep_faults=_KEPT_FAULTS), repr=False)

    @property
    def frame_pixels(self) -> int:
        return frame_pixels(self.info)

    def forgetting(self) -> VideoEmbedder:
        """Return a copy that remembers no failed video, and so retries each."""
        return replace(self, locks=KeyedLocks(), extractor=replace(self.extractor, locks=KeyedLocks()))

    def shard_key(self, jobs: Sequence[Job]) -> str | None:
        """Return the key of the file of the videos of some jobs; None if there are too few of them."""
        if len(jobs) < LEAST_VIDEOS:
            return None
        videos = [(job.video_uri, Segment.of(job.start_s, job.end_s)) for job in jobs]
        any_version = ObjectInfo(uri="", size_bytes=0, fingerprint="")
        return identity_of(any_version, WHOLE, spec=self.spec, encoder=self.info).of_shard(videos)

    def identity(self, job: Job, info: ObjectInfo) -> VectorKey:
        return identity_of(info, Segment.of(job.start_s, job.end_s), spec=self.spec, encoder=self.info)

    def embed(self, job: Job, info: ObjectInfo | None = None) -> EmbeddedVideo:
        return self.embed_segment(job.video_uri, Segment.of(job.start_s, job.end_s), info)

    def embed_segment(self, uri: str, segment: Segment, info: ObjectInfo | None = None) -> EmbeddedVideo:
        """Return the embeddings of a segment of a video.

        Raises:
            VideoError: The video cannot be used; see its code.
            InferenceError: Its frames crash the encoder.
            EngineLostError: The encoder dies.
            TransientError: The store is unavailable.
        """
        extractor, started = self.extractor, time.perf_counter()
        info = info or stat_video(extractor.objects, uri)
        identity = identity_of(info, segment, spec=self.spec, encoder=self.info)
        with self.locks.hold(identity.key):
            found = self.cache.find(identity)
            if found is not None:
                read_ms = (time.perf_counter() - started) * 1e3
                cost = DescriptionCost(cache_read_ms=read_ms)
                return EmbeddedVideo(info=info, identity=identity, embeddings=found, was_cached=True, cost=cost)
            try:
                return self._make(info, identity)
            except VideoError as error:
                error.fingerprint = error.fingerprint or info.fingerprint
                raise

    def _make(self, info: ObjectInfo, identity: VectorKey) -> EmbeddedVideo:
        self.frames.start()  # for the first video of a run, the model loads while it is decoded
        stated_s = max(0.0, look_at(self.extractor, info.uri, info).index.info.duration_s)
        embedded = self._embed_pieces(info, identity.segment, stated_s)
        embeddings = embedded.joined(identity.segment.start_s or 0.0)
        started = time.perf_counter()
        refused = self.cache.write(identity, embeddings)
        if refused:
            embedded.rewritten[f"embedding file rewritten: {refused}"] = None
        write_ms = (time.perf_counter() - started) * 1e3
        return EmbeddedVideo(
            info=info,
            identity=identity,
            embeddings=as_read_back(embeddings),
            was_cached=False,
            rewritten="; ".join(embedded.rewritten),
            decode_method=embedded.method,
            cost=replace(embedded.cost, cache_write_ms=embedded.cost.cache_write_ms + write_ms),
        )

    def _embed_pieces(self, info: ObjectInfo, segment: Segment, stated_s: float) -> _EmbeddedPieces:
        """Embed the frames of a video, or of a segment of it, piece by piece.

        A video that must be fetched whole is fetched once for all pieces, and one that must be decoded from its
        beginning is decoded in one pass.
        """
        embedded = _EmbeddedPieces(length_s=_length_s(stated_s, segment))
        cut = partial(cut_pieces, segment, spec=self.spec, frame_pixels=self.frame_pixels)
        pieces = [*cut(embedded.length_s)] if stated_s else [first_chunk(segment, self.spec)]
        if stated_s and len(pieces) == 1:
            self._add(self._extract(self.extractor, info, *pieces[0]), embedded)
            return embedded
        with temporary_folder("video") as folder, closing(self.extractor.pool.in_pieces(length_s=stated_s)) as decoder:
            extractor = replace(self.extractor, copies=DownloadCache(folder=folder), pieces=decoder)
            extract = partial(self._extract, extractor, info)
            first = extract(*pieces[0])
            self._add(first, embedded)
            if not stated_s:
                embedded.length_s = _length_s(_found_s(first.frames.selection), segment)
                if embedded.length_s:
                    pieces += cut(embedded.length_s, first=1)
                elif first.frames.selection.total_frames != 1:  # no image
                    pieces.append(self._rest(pieces[0], segment))
            # The next piece is decoded while the encoder works on one.
            with closing(prefetch(starmap(extract, pieces[1:]))) as rest:
                added = 1
                try:
                    for piece in rest:
                        self._add(piece, embedded)
                        added += 1
                except _ENDED as error:
                    embedded.end(pieces[added][0].start_s or 0.0, error.message)
        return embedded

    def _rest(self, first: Piece, segment: Segment) -> Piece:
        """Return the rest after the first chunk of a video whose length is unknown."""
        start_s = (first[0].start_s or 0.0) + self.spec.seconds_per_chunk
        return Segment.of(start_s, segment.end_s), most_chunks(self.spec, frame_pixels=self.frame_pixels)

    def _extract(self, extractor: FrameExtractor, info: ObjectInfo, segment: Segment, chunks: int) -> _PieceFrames:
        sampling = self.spec.sampling(chunks=chunks, max_pixels=self.frame_pixels)
        return _extract(replace(extractor, sampling=sampling), info, segment)

    def _add(self, piece: _PieceFrames, embedded: _EmbeddedPieces) -> None:
        raise_if_abandoned()
        images, is_new = piece.frames.unique, embedded.find_new(piece)
        new = images if is_new.all() else images[is_new]
        embedded.add(piece, is_new, self.frames.embed(new) if len(new) else None)


def open_embedder(
    settings: Settings,
    extractor: FrameExtractor,
    encoder: Encoder,
    info: EncoderInfo,
    *,
    spec: EmbeddingSpec,
    files: ObjectStore,
    charge: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> VideoEmbedder:
    """Create the embedder of the videos that an extractor prepares; `charge` measures the time of the encoder."""
    return VideoEmbedder(
        extractor=extractor,
        cache=VectorCache.of(settings.store, files),
        frames=FrameBatcher(encoder=encoder, charge=charge),
        spec=spec,
        info=info,
    )


@dataclass(frozen=True, slots=True)
class _PieceFrames:
    segment: Segment
    video: ExtractedVideo
    frames: Frames = field(repr=False)
    read_ms: float


def _length_s(stated_s: float, segment: Segment) -> float:
    end_s = stated_s if segment.end_s is None else min(segment.end_s, stated_s)
    return max(0.0, end_s - (segment.start_s or 0.0))


def _found_s(known: Selection) -> float:
    """Return the length of a video by its frames, or at least by its keyframes; 0 if unknown."""
    if known.duration_s or known.keyframe_ms is None or not known.keyframe_ms.size:
        return known.duration_s
    return float(known.keyframe_ms[-1] - (known.first_ms or 0)) / _MS


def _extract(extractor: FrameExtractor, info: ObjectInfo, segment: Segment) -> _PieceFrames:
    """Prepare and read a frame file; if it was removed or altered in between, it is rewritten once."""
    for attempt in (1, 2):
        video = extractor.prepare(info.uri, info, segment=segment)
        started = time.perf_counter()
        try:
            data = extractor.cache.read(video.identity)
            if extractor.pieces and is_sparse(data):
                extractor.pieces.close()  # a thread that waits for a process must not hold one
            frames = load_frames(with_pixels(data, extractor.pool, extractor.limits))
            return _PieceFrames(segment, video, frames, (time.perf_counter() - started) * 1e3)
        except (FrameFileError, ObjectMissingError) as error:
            refused = error.message
            if attempt == 1:
                continue
    uri = extractor.cache.uri_of(video.identity.key)
    raise FrameFileError(f"The frame file {uri} was rewritten, but is invalid again: {refused}")


@dataclass(slots=True)
class _EmbeddedPieces:
    """The embedded frames of a video's pieces so far."""

    vectors: list[npt.NDArray[np.float32]] = field(default_factory=list)
    pts_ms: list[npt.NDArray[np.int64]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    rewritten: dict[str, None] = field(default_factory=dict)
    method: str = ""
    cost: DescriptionCost = field(default_factory=DescriptionCost)
    first_ms: int | None = None
    length_s: float = 0.0
    is_cut: bool = False

    def find_new(self, piece: _PieceFrames) -> npt.NDArray[np.bool_]:
        """Return which frames of a piece are not in earlier pieces; none if the piece has no frames of its own."""
        times_ms = self._times_ms(piece)
        is_new: npt.NDArray[np.bool_] = np.diff(times_ms, prepend=times_ms[:1] - 1) > 0
        if self.pts_ms:  # a piece without frames of its own repeats the last one before it
            is_new &= (times_ms > self.pts_ms[-1][-1]) & (times_ms >= round((piece.segment.start_s or 0.0) * _MS) - 1)
        return is_new

    def _times_ms(self, piece: _PieceFrames) -> npt.NDArray[np.int64]:
        if self.first_ms is None:
            self.first_ms = piece.frames.selection.first_ms or 0
        return np.round(piece.frames.selection.time_s * _MS).astype(np.int64) - self.first_ms

    def add(self, piece: _PieceFrames, is_new: npt.NDArray[np.bool_], embedded: EmbeddedFrames | None) -> None:
        video, read_ms, seen = piece.video, piece.read_ms, piece.video.provenance
        is_cut = _CUT in seen.decode_note
        if embedded:
            self.vectors.append(embedded.vectors)
            self.pts_ms.append(self._times_ms(piece)[is_new])
        if embedded or is_cut:  # otherwise, the note says that the piece has no frames
            self.notes |= dict.fromkeys(filter(None, [seen.decode_note]))
        self.method = self.method or seen.decode_method
        self.is_cut |= is_cut
        self.rewritten |= dict.fromkeys(filter(None, [video.rewritten]))
        more = DescriptionCost(
            frames_decoded=0 if video.was_cached else seen.frames_decoded,
            frames_embedded=int(is_new.sum()),
            bytes_fetched=seen.bytes_fetched,
            fetch_ms=seen.fetch_ms,
            decode_ms=seen.decode_ms,
            cache_write_ms=seen.cache_write_ms,
            cache_read_ms=read_ms + (video.lookup_ms if video.was_cached else 0.0),
            embed_ms=embedded.embed_ms if embedded else 0.0,
        )
        self.cost = self.cost + more

    def end(self, start_s: float, why: str) -> None:
        self.is_cut = True
        self.notes[f"no frames from {start_s:g} s on: {why.rstrip('.')}"] = None

    def joined(self, start_s: float) -> Embeddings:
        pts_ms = np.concatenate(self.pts_ms)
        shown_s = max(0.0, float(pts_ms[-1]) / _MS - start_s)
        return Embeddings(
            vectors=np.concatenate(self.vectors),
            pts_ms=pts_ms,
            first_ms=self.first_ms or 0,
            duration_s=shown_s if self.is_cut else max(self.length_s, shown_s),
            note="; ".join(self.notes),
        )
