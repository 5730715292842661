"""Measures bytes and milliseconds of storing frames, by format.

Writing is encoding the frames and putting the file on the S3 server; reading is getting and decoding it. Encoding
ranges includes the proof that they decode to the same pixels, in a child process, as reading does.
"""

from __future__ import annotations

import os
import time
import timeit
import zlib
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.extraction.loaders import SAMPLING, FileParts
from benchmarks.harness import Column, Table, own_store
from benchmarks.media.clips import store_clips
from reelabel.extract import extract_ranges
from reelabel.frames.cache_key import FrameIdentity
from reelabel.frames.frame_file import read_frames, write_frames, write_sparse
from reelabel.frames.pixels import from_differences, to_differences
from reelabel.frames.sparse import RecordingSource, SparseVideo
from reelabel.options import Limits
from reelabel.pool.decode_pool import DecodePool
from reelabel.seal import Seal
from reelabel.segment import WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from benchmarks.harness import Row
    from benchmarks.media.clips import BenchClip
    from reelabel.frames.pixels import LosslessEncoding
    from reelabel.result import Frames
    from reelabel.sources.object_store import ObjectStore

SPARSE = "sparse"
_CODECS: tuple[LosslessEncoding, ...] = ("raw", "zstd")
_STEPS = ("encode_ms", "put_ms", "get_ms", "decode_ms")
_COLUMNS = (
    Column("", "format"),
    Column("bytes", "stored_bytes", ","),
    Column("of raw", lambda row: row["stored_bytes"] / row["raw_bytes"], ".1%"),
    *(Column(step.removesuffix("_ms"), step, ",.1f") for step in _STEPS),
    Column("pixels", lambda row: "exact" if row["psnr_db"] is None else f"{row['psnr_db']:.1f} dB"),
)
_SEALED_MIB = 10


class Format(NamedTuple):
    """One format of stored frames."""

    encode: Callable[[], bytes]
    decode: Callable[[bytes], npt.NDArray[np.uint8]]


def store(length_s: int, folder: Path, *, rounds: int) -> list[Table]:
    """Measure every format on clips of one length."""
    clips = store_clips(length_s)
    with own_store() as (objects, root_uri):
        rows = list(measure_store(clips, folder, objects=objects, root_uri=root_uri, rounds=rounds))
    tables = [
        Table(f"{clip.name}, milliseconds (medians)", [row for row in rows if row["clip"] == clip.name], _COLUMNS)
        for clip in clips
    ]
    verified = [{"what": name, "ms": ms} for name, ms in measure_seal(rounds).items()]
    columns = (Column("of each MiB of a frame file, verifying its", "what"), Column("ms", "ms", ".2f"))
    return [*tables, Table("Verification", verified, columns)]


def measure_store(
    clips: Sequence[BenchClip], folder: Path, *, objects: ObjectStore, root_uri: str, rounds: int
) -> Iterator[Row]:
    """Yield the cost of every format on each clip, interleaving the formats within a round."""
    with DecodePool(processes=1, timeout_s=300, memory_mib=4096, threads=1) as pool:
        for clip in clips:
            path = clip.make(folder)
            source = RecordingSource(FileParts(path))
            keyframes, _ = extract_ranges(source, sampling=SAMPLING, limits=Limits())
            formats = _formats(keyframes)
            formats[SPARSE] = _sparse(keyframes, SparseVideo(source.size_bytes, source.ranges), pool)
            uri = f"{root_uri}/{clip.name}.frames"
            turns = [{name: _steps_ms(form, objects, uri) for name, form in formats.items()} for _ in range(rounds)]
            for name, form in formats.items():
                data = form.encode()
                yield {
                    "clip": clip.name,
                    "format": name,
                    "stored_bytes": len(data),
                    "raw_bytes": keyframes.unique.nbytes,
                    **dict(zip(_STEPS, map(median, zip(*(turn[name] for turn in turns), strict=True)), strict=True)),
                    "psnr_db": _psnr_db(keyframes.unique, form.decode(data)),
                }


def measure_seal(rounds: int) -> dict[str, float]:
    """Measure what one verification of a frame file costs, in milliseconds per MiB: `seal` and `checksum`."""
    data, seal = os.urandom(_SEALED_MIB * 1024**2), Seal(os.urandom(32))
    ways = {"seal": lambda: seal.make("clip", data), "checksum": lambda: zlib.crc32(data)}
    return {
        name: min(timeit.repeat(verify, number=1, repeat=rounds)) * 1e3 / _SEALED_MIB for name, verify in ways.items()
    }


def _formats(keyframes: Frames) -> dict[str, Format]:
    def stored(jpeg_quality: int | None = None, lossless: LosslessEncoding = "zstd") -> Format:
        identity = FrameIdentity(sampling=replace(SAMPLING, jpeg_quality=jpeg_quality))
        return Format(lambda: write_frames(keyframes, identity, encoding=lossless), _decode)

    images = keyframes.unique
    return {
        **{name: stored(lossless=name) for name in _CODECS},
        "zstd, plain": _compressed(images, level=1, differences=False),  # the others compress differences
        **{f"zstd {level}": _compressed(images, level=level) for level in (3, 9)},
        **{f"jpeg {quality}": stored(quality) for quality in (85, 95)},
    }


def _sparse(keyframes: Frames, video: SparseVideo, pool: DecodePool) -> Format:
    def encode() -> bytes:
        images = video.decode(pool, sampling=SAMPLING, segment=WHOLE, limits=Limits())
        assert np.array_equal(images, keyframes.unique)
        return write_sparse(keyframes, FrameIdentity(sampling=SAMPLING), video)

    return Format(encode, lambda data: read_frames(data, pool=pool).unique)


def _decode(data: bytes) -> npt.NDArray[np.uint8]:
    return read_frames(data).unique


def _compressed(images: npt.NDArray[np.uint8], *, level: int, differences: bool = True) -> Format:
    """Compress pixels at a level that frame files do not offer, without checksum and Arrow layout."""
    codec = pa.Codec("zstd", compression_level=level)

    def decode(data: bytes) -> npt.NDArray[np.uint8]:
        flat: npt.NDArray[np.uint8] = np.frombuffer(codec.decompress(data, images.nbytes), np.uint8)
        return from_differences(flat.reshape(images.shape)) if differences else flat.reshape(images.shape)

    def encode() -> bytes:
        return bytes(codec.compress((to_differences(images) if differences else images).tobytes(), asbytes=True))

    return Format(encode, decode)


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
    return 10 * float(np.log10(255**2 / error)) if error else None
