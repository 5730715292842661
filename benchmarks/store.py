"""`reelabel bench store`: what storing frames costs in bytes and milliseconds, way by way.

Writing is encoding and putting the file on the S3 server, reading is getting it and decoding it.
Packets are encoded by the proof that they give the same pixels; it decodes them in a child, as
reading does.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.loaders import SAMPLING, FileParts
from tasks.frames.file import decode_frame_file, make_frame_file
from tasks.frames.packets import gather_packets, prove_packets, with_packets, with_pixels
from tasks.frames.pixels import from_differences, to_differences
from tasks.video.extract import extract_by_ranges
from tasks.video.limits import Limits
from tasks.video.pool import DecodePool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from benchmarks.clips import BenchClip
    from infra.objects import ObjectStore
    from tasks.frames.file import FrameFile
    from tasks.frames.packets import StoredPackets
    from tasks.frames.pixels import Lossless
    from tasks.video.keyframes import Keyframes

PACKETS = "packets"
_PLAIN = "zstd, plain"  # of pixels as they are; the others are of differences
_LOSSLESS: tuple[Lossless, ...] = ("raw", "lz4", "zstd")
_ZSTD_LEVELS = (3, 9)
_JPEG_QUALITIES = (85, 95)
_MOST = 255
_POOL_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Way:
    """One way of storing frames."""

    encode: Callable[[], bytes]
    decode: Callable[[bytes], npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRow:
    """What one way takes for the frames of one clip; milliseconds are medians.

    Attributes:
        stored_bytes: Bytes of the file.
        raw_bytes: Bytes of the pixels.
        psnr_db: How near the pixels come back; None where they are the same.
    """

    clip: BenchClip
    way: str
    stored_bytes: int
    raw_bytes: int
    encode_ms: float
    put_ms: float
    get_ms: float
    decode_ms: float
    psnr_db: float | None


def measure_store(
    clips: Sequence[BenchClip],
    folder: Path,
    *,
    objects: ObjectStore,
    root_uri: str,
    rounds: int,
) -> Iterator[StoreRow]:
    """Measure every way on each clip, the ways in turn within a round.

    Args:
        clips: Whose frames are stored.
        folder: Where clips are made once.
        objects: The store.
        root_uri: Where on it the files are put.
        rounds: How often each way is taken.
    """
    with DecodePool(processes=1, timeout_s=_POOL_TIMEOUT_S, memory_mib=4096) as pool:
        for clip in clips:
            path = clip.make(folder)
            keyframes, index = extract_by_ranges(FileParts(path), sampling=SAMPLING, limits=Limits())
            ways = _ways(keyframes)
            packets = gather_packets(keyframes, index, FileParts(path))
            assert packets is not None  # the clips are MP4
            ways[PACKETS] = _packed(keyframes, packets, pool)
            times = _in_turn(ways, objects, f"{root_uri}/{clip.name}.frames", rounds)
            for name, way in ways.items():
                yield _row(clip, name, way, images=keyframes.images, times=times[name])


def _row(
    clip: BenchClip, name: str, way: Way, *, images: npt.NDArray[np.uint8], times: Sequence[tuple[float, ...]]
) -> StoreRow:
    data = way.encode()
    encode_ms, put_ms, get_ms, decode_ms = map(median, zip(*times, strict=True))
    return StoreRow(
        clip=clip,
        way=name,
        stored_bytes=len(data),
        raw_bytes=images.nbytes,
        encode_ms=encode_ms,
        put_ms=put_ms,
        get_ms=get_ms,
        decode_ms=decode_ms,
        psnr_db=_psnr_db(images, way.decode(data)),
    )


def _ways(keyframes: Keyframes) -> dict[str, Way]:
    ways: dict[str, Way] = {name: _stored(keyframes, lossless=name) for name in _LOSSLESS}
    ways[_PLAIN] = _compressed(keyframes.images, level=1, differences=False)
    ways |= {f"zstd {level}": _compressed(keyframes.images, level=level) for level in _ZSTD_LEVELS}
    return ways | {f"jpeg {quality}": _stored(keyframes, jpeg_quality=quality) for quality in _JPEG_QUALITIES}


def _packed(keyframes: Keyframes, packets: StoredPackets, pool: DecodePool) -> Way:
    def encode() -> bytes:
        assert prove_packets(packets, keyframes, pool, sampling=SAMPLING, limits=Limits())
        return with_packets(_frame_file(keyframes, lossless="raw"), packets)

    return Way(encode, lambda data: _decode(with_pixels(decode_frame_file(data), pool, Limits())))


def _stored(keyframes: Keyframes, *, lossless: Lossless = "zstd", jpeg_quality: int | None = None) -> Way:
    return Way(lambda: _frame_file(keyframes, lossless=lossless, jpeg_quality=jpeg_quality).data, _decode)


def _frame_file(keyframes: Keyframes, *, lossless: Lossless = "zstd", jpeg_quality: int | None = None) -> FrameFile:
    sampling = SAMPLING.model_copy(update={"jpeg_quality": jpeg_quality})
    return make_frame_file(keyframes, source_uri="clip", fingerprint="1", sampling=sampling, lossless=lossless)


def _decode(data: bytes) -> npt.NDArray[np.uint8]:
    return decode_frame_file(data).images


def _compressed(images: npt.NDArray[np.uint8], *, level: int, differences: bool = True) -> Way:
    """Compress pixels at a level that frame files do not have; neither sealed nor laid out as Arrow."""
    codec = pa.Codec("zstd", compression_level=level)

    def encode() -> bytes:
        compressed: bytes = codec.compress((to_differences(images) if differences else images).tobytes(), asbytes=True)
        return compressed

    def decode(data: bytes) -> npt.NDArray[np.uint8]:
        flat: npt.NDArray[np.uint8] = np.frombuffer(codec.decompress(data, images.nbytes), np.uint8)
        return from_differences(flat.reshape(images.shape)) if differences else flat.reshape(images.shape)

    return Way(encode, decode)


def _in_turn(
    ways: Mapping[str, Way], objects: ObjectStore, uri: str, rounds: int
) -> dict[str, list[tuple[float, ...]]]:
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            times[name].append(_steps_ms(way, objects, uri))
    return times


def _steps_ms(way: Way, objects: ObjectStore, uri: str) -> tuple[float, ...]:
    """Time encoding, putting, getting and decoding."""
    ticks = [time.perf_counter()]
    data = way.encode()
    ticks.append(time.perf_counter())
    objects.replace(uri, data)
    ticks.append(time.perf_counter())
    data = objects.read(uri)
    ticks.append(time.perf_counter())
    way.decode(data)
    ticks.append(time.perf_counter())
    return tuple((after - before) * 1e3 for before, after in pairwise(ticks))


def _psnr_db(images: npt.NDArray[np.uint8], others: npt.NDArray[np.uint8]) -> float | None:
    """Peak signal-to-noise ratio over all samples."""
    error = float(np.mean((images.astype(np.int16) - others) ** 2, dtype=np.float64))
    return 10 * float(np.log10(_MOST**2 / error)) if error else None
