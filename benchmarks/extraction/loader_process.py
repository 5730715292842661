"""Decodes in a separate process: `python -m benchmarks.extraction.loader_process ours`, `torchcodec` or `bare`.

Each line of input is a request, and each line of output its times, as JSON. The process of TorchCodec runs in another
environment, so that this module imports a loader's libraries only when it is chosen.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    Loader = Callable[[Mapping[str, Any]], "Loaded"]


class Loaded(NamedTuple):
    """What a loader returns.

    Attributes:
        times_s: Times of the picked frames in seconds.
        indices: Their positions in the video.
        images: Their pixels, RGB; shape (N, H, W, 3), or (0, 0, 0, 3) of a loader that converts none.
        decoded: Number of pictures decoded; 0 if the loader does not tell.
    """

    times_s: list[float]
    indices: list[int]
    images: npt.NDArray[np.uint8]
    decoded: int = 0


def load_ours() -> Loader:
    """Return the loader that does its own sampling."""
    import reelabel  # noqa: PLC0415

    def load(request: Mapping[str, Any]) -> Loaded:
        with reelabel.open(request["path"], threads=request["threads"]) as video:
            got = video.sample(request.get("sampler", "uniform"), num_frames=request["frames"])
        return Loaded(got.time_s.tolist(), got.index.tolist(), got.images, got.cost.frames_decoded)

    return load


def load_torchcodec() -> Loader:
    """Return the loader of the frames that ours has sampled, or of uniform ones."""
    from torchcodec.decoders import VideoDecoder  # noqa: PLC0415

    def load(request: Mapping[str, Any]) -> Loaded:
        decoder = VideoDecoder(
            request["path"],
            dimension_order="NHWC",
            num_ffmpeg_threads=request["threads"],
            seek_mode=request["seek_mode"],
        )
        uniform = np.linspace(0, decoder.metadata.num_frames - 1, request["frames"]).astype(int).tolist()
        indices = request.get("indices", uniform)
        batch = decoder.get_frames_at(indices)
        return Loaded(batch.pts_seconds.tolist(), indices, batch.data.numpy())

    return load


def load_bare() -> Loader:
    """Return the lower bound, which reads a clip's packets when it is asked about the clip for the first time."""
    from benchmarks.extraction.loaders import BareDecode  # noqa: PLC0415

    clips: dict[str, BareDecode] = {}

    def load(request: Mapping[str, Any]) -> Loaded:
        path = request["path"]
        if path not in clips:
            clips[path] = BareDecode(path, request["indices"])
        decoded = clips[path].decode(request["threads"], skips_leaves=request["skips_leaves"])
        return Loaded([], request["indices"], np.empty((0, 0, 0, 3), np.uint8), decoded)

    return load


LOADERS = {"ours": load_ours, "torchcodec": load_torchcodec, "bare": load_bare}


def answer(load: Loader, request: Mapping[str, Any]) -> dict[str, Any]:
    read_before = _bytes_read()
    started, cpu_started = time.perf_counter(), time.process_time()
    got = load(request)
    ms, cpu_ms = (time.perf_counter() - started) * 1e3, (time.process_time() - cpu_started) * 1e3
    if request.get("keep"):
        np.save(request["keep"], got.images)
    return {
        "ms": ms,
        "cpu_ms": cpu_ms,
        "bytes_read": _bytes_read() - read_before,
        "times_s": got.times_s,
        "indices": got.indices,
        "decoded": got.decoded,
    }


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def main() -> None:
    load = LOADERS[sys.argv[1]]()
    for line in sys.stdin:
        print(json.dumps(answer(load, json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
