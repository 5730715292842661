"""Bytes and milliseconds of storing frames, by format.

Writing is encoding the frames and putting the file on the S3 server; reading is getting and decoding it. Encoding
packets includes the proof that they decode to the same pixels, in a child process, as reading does.
"""

from __future__ import annotations

import os
import time
import timeit
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from benchmarks.extraction.loaders import SAMPLING, FileParts
from reelabel.extract import extract_ranges
from reelabel.frames.frame_file import decode_frame_file, encode_frame_file
from reelabel.frames.packets import collect_packets, verify_packets, with_packets, with_pixels
from reelabel.frames.pixels import from_differences, to_differences
from reelabel.limits import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from benchmarks.media.clips import BenchClip
    from reelabel.frames.frame_file import FrameFile
    from reelabel.frames.packets import StoredPackets
    from reelabel.frames.pixels import LosslessEncoding
    from reelabel.sampled_frames import SampledFrames
    from reelabel.sources.object_store import ObjectStore

PACKETS = "packets"
_PLAIN = "zstd, plain"  # compresses the pixels themselves; the others, differences between frames
_CODECS: tuple[LosslessEncoding, ...] = ("raw", "lz4", "zstd")
_ZSTD_LEVELS = (3, 9)
_JPEG_QUALITIES = (85, 95)
_MOST = 255
_POOL_TIMEOUT_S = 300
_SEALED_MIB = 10


@dataclass(frozen=True, slots=True)
class Format:
    """One format of stored frames."""

    encode: Callable[[], bytes]
    decode: Callable[[bytes], npt.NDArray[np.uint8]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRow:
    """Cost of one format for the frames of one clip; milliseconds are medians.

    Attributes:
        stored_bytes: Size of the file.
        raw_bytes: Size of the pixels.
        psnr_db: Peak signal-to-noise ratio; None where the pixels are identical.
    """

    clip: BenchClip
    format: str
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
    """Measure every format on each clip, interleaving the formats within a round.

    Args:
        clips: Clips whose frames are stored.
        folder: Folder that keeps the clips.
        objects: The store.
        root_uri: Where the files are uploaded.
        rounds: Repetitions of each format.
    """
    with DecodePool(processes=1, timeout_s=_POOL_TIMEOUT_S, memory_mib=4096, threads=1) as pool:
        for clip in clips:
            path = clip.make(folder)
            keyframes, index = extract_ranges(FileParts(path), sampling=SAMPLING, limits=Limits())
            formats = _formats(keyframes)
            packets = collect_packets(keyframes, index, FileParts(path))
            assert packets is not None  # the clips are MP4
            formats[PACKETS] = _packed(keyframes, packets, pool)
            times = _interleave(formats, objects, f"{root_uri}/{clip.name}.frames", rounds)
            for name, form in formats.items():
                yield _row(clip, name, form, images=keyframes.images, times=times[name])


def measure_seal(rounds: int) -> dict[str, float]:
    """Measure what one verification of a frame file costs, in milliseconds per MiB: `seal` and `checksum`."""
    data, seal = os.urandom(_SEALED_MIB * 1024**2), Seal(os.urandom(32))
    ways = {"seal": lambda: seal.make("clip", data), "checksum": lambda: zlib.crc32(data)}
    return {
        name: min(timeit.repeat(verify, number=1, repeat=rounds)) * 1e3 / _SEALED_MIB for name, verify in ways.items()
    }


def _row(
    clip: BenchClip, name: str, form: Format, *, images: npt.NDArray[np.uint8], times: Sequence[tuple[float, ...]]
) -> StoreRow:
    data = form.encode()
    encode_ms, put_ms, get_ms, decode_ms = map(median, zip(*times, strict=True))
    return StoreRow(
        clip=clip,
        format=name,
        stored_bytes=len(data),
        raw_bytes=images.nbytes,
        encode_ms=encode_ms,
        put_ms=put_ms,
        get_ms=get_ms,
        decode_ms=decode_ms,
        psnr_db=_psnr_db(images, form.decode(data)),
    )


def _formats(keyframes: SampledFrames) -> dict[str, Format]:
    formats: dict[str, Format] = {name: _stored(keyframes, lossless=name) for name in _CODECS}
    formats[_PLAIN] = _compressed(keyframes.images, level=1, differences=False)
    formats |= {f"zstd {level}": _compressed(keyframes.images, level=level) for level in _ZSTD_LEVELS}
    return formats | {f"jpeg {quality}": _stored(keyframes, jpeg_quality=quality) for quality in _JPEG_QUALITIES}


def _packed(keyframes: SampledFrames, packets: StoredPackets, pool: DecodePool) -> Format:
    def encode() -> bytes:
        assert verify_packets(packets, keyframes, pool, sampling=SAMPLING, limits=Limits())
        return with_packets(_frame_file(keyframes, lossless="raw"), packets)

    return Format(encode, lambda data: _decode(with_pixels(decode_frame_file(data), pool, Limits())))


def _stored(
    keyframes: SampledFrames, *, lossless: LosslessEncoding = "zstd", jpeg_quality: int | None = None
) -> Format:
    return Format(lambda: _frame_file(keyframes, lossless=lossless, jpeg_quality=jpeg_quality).data, _decode)


def _frame_file(
    keyframes: SampledFrames, *, lossless: LosslessEncoding = "zstd", jpeg_quality: int | None = None
) -> FrameFile:
    sampling = replace(SAMPLING, jpeg_quality=jpeg_quality)
    return encode_frame_file(keyframes, source_uri="clip", fingerprint="1", sampling=sampling, lossless=lossless)


def _decode(data: bytes) -> npt.NDArray[np.uint8]:
    return decode_frame_file(data).images


def _compressed(images: npt.NDArray[np.uint8], *, level: int, differences: bool = True) -> Format:
    """Compress pixels at a level that frame files do not offer, without checksum and Arrow layout."""
    codec = pa.Codec("zstd", compression_level=level)

    def encode() -> bytes:
        compressed: bytes = codec.compress((to_differences(images) if differences else images).tobytes(), asbytes=True)
        return compressed

    def decode(data: bytes) -> npt.NDArray[np.uint8]:
        flat: npt.NDArray[np.uint8] = np.frombuffer(codec.decompress(data, images.nbytes), np.uint8)
        return from_differences(flat.reshape(images.shape)) if differences else flat.reshape(images.shape)

    return Format(encode, decode)


def _interleave(
    formats: Mapping[str, Format], objects: ObjectStore, uri: str, rounds: int
) -> dict[str, list[tuple[float, ...]]]:
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in formats}
    for _ in range(rounds):
        for name, form in formats.items():
            times[name].append(_steps_ms(form, objects, uri))
    return times


def _steps_ms(form: Format, objects: ObjectStore, uri: str) -> tuple[float, ...]:
    """Time encoding, putting, getting and decoding."""
    ticks = [time.perf_counter()]
    data = form.encode()
    ticks.append(time.perf_counter())
    objects.replace(uri, data)
    ticks.append(time.perf_counter())
    data = objects.read(uri)
    ticks.append(time.perf_counter())
    form.decode(data)
    ticks.append(time.perf_counter())
    return tuple((after - before) * 1e3 for before, after in pairwise(ticks))


def _psnr_db(images: npt.NDArray[np.uint8], others: npt.NDArray[np.uint8]) -> float | None:
    """Return the peak signal-to-noise ratio over all samples; None where all are equal."""
    error = float(np.mean((images.astype(np.int16) - others) ** 2, dtype=np.float64))
    return 10 * float(np.log10(_MOST**2 / error)) if error else None
