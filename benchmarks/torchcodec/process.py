"""Decodes in a process of its own: `python -m benchmarks.torchcodec.process ours` or `torchcodec`.

Each line of input is a request, and each line of output its times, as JSON. The process of TorchCodec runs in another
environment, so that this module imports a loader's libraries only when it is chosen.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy.typing as npt

    Loaded = tuple[list[float], list[int], npt.NDArray[np.uint8]]  # times in seconds, indices, RGB
    Loader = Callable[[Mapping[str, Any]], Loaded]


def load_ours() -> Loader:
    """Return the loader that samples frames by itself."""
    from reelabel.extract import extract_keyframes  # noqa: PLC0415
    from reelabel.sampling.options import Sampling  # noqa: PLC0415

    def load(request: Mapping[str, Any]) -> Loaded:
        sampling = Sampling(sampler="uniform", num_frames=request["frames"])
        is_native = not request["at_model_size"]
        got = extract_keyframes(request["path"], sampling=sampling, native=is_native, threads=request["threads"])
        return got.time_s.tolist(), got.frame_index.tolist(), got.images

    return load


def load_torchcodec() -> Loader:
    """Return the loader of the frames that ours has sampled."""
    from torchcodec.decoders import VideoDecoder  # noqa: PLC0415
    from torchcodec.transforms import Resize  # noqa: PLC0415

    def load(request: Mapping[str, Any]) -> Loaded:
        decoder = VideoDecoder(
            request["path"],
            dimension_order="NHWC",
            num_ffmpeg_threads=request["threads"],
            seek_mode=request["seek_mode"],
            transforms=[Resize(tuple(request["size"]))] if request["at_model_size"] else None,
        )
        batch = decoder.get_frames_at(request["indices"])
        return batch.pts_seconds.tolist(), request["indices"], batch.data.numpy()

    return load


LOADERS = {"ours": load_ours, "torchcodec": load_torchcodec}


def answer(load: Loader, request: Mapping[str, Any]) -> dict[str, Any]:
    """Load frames, and return how long that took and what they are."""
    started, cpu_started = time.perf_counter(), time.process_time()
    times_s, indices, images = load(request)
    ms, cpu_ms = (time.perf_counter() - started) * 1e3, (time.process_time() - cpu_started) * 1e3
    if request.get("keep"):
        np.save(request["keep"], images)
    return {"ms": ms, "cpu_ms": cpu_ms, "times_s": times_s, "indices": indices, "size": images.shape[1:3]}


def main() -> None:
    """Answer requests until the input ends."""
    load = LOADERS[sys.argv[1]]()
    for line in sys.stdin:
        print(json.dumps(answer(load, json.loads(line))), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
