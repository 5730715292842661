"""Lets the installed vLLM choose frames: `python ask_vllm.py CASES.json ANSWERS.npz`.

vLLM takes seconds to import, and on a CPU an environment of its own: hence a process for all cases.
"""

import inspect
import json
import sys
from pathlib import Path

import numpy as np
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY, VideoSourceMetadata, VideoTargetMetadata

REFUSED = -1


def choose(sampler, loader, options, source):
    loader = VIDEO_LOADER_REGISTRY.load(loader)
    # What a case leaves open is left to the loader, so that our defaults are compared as well.
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(loader.load_bytes).parameters.items()
    } | {"sampling_fps": 2}  # hidden among molmo2's keyword arguments
    fps = options.get("fps", defaults.get("fps", defaults["sampling_fps"]))
    target = VideoTargetMetadata(
        num_frames=options["num_frames"],
        fps=fps,
        max_duration=options.get("max_duration_s", defaults.get("max_duration")),
    )
    named = {name: options[name] for name in ("min_frames", "max_frames") if name in options}
    if sampler == "molmo2":
        named = {"frame_sample_mode": options.get("frame_sample_mode", "uniform_last_frame"), "max_fps": fps}
    prepared = loader._prepare_source(VideoSourceMetadata(*source))
    return loader.compute_frames_index_to_sample(prepared, target, **named)


def main(cases_path, answers_path):
    counts, indices = [], []
    for case in json.loads(Path(cases_path).read_text()):
        try:
            chosen = choose(**case)
        except (ArithmeticError, AssertionError, LookupError, ValueError):
            counts.append(REFUSED)
        else:
            counts.append(len(chosen))
            indices.extend(chosen)
    processors = [f"{name} {loader}" for name, loader in VIDEO_LOADER_REGISTRY.processor2backend.items()]
    np.savez(
        answers_path,
        counts=np.array(counts, np.int64),
        indices=np.array(indices, np.int64),
        processors=np.array(processors),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
