"""Lets the installed vLLM choose frames: `python ask_vllm.py CASES.json ANSWERS.npz`.

vLLM takes seconds to import, and on a CPU an environment of its own: hence a process for all cases.
"""

import inspect
import json
import sys
from pathlib import Path

import numpy as np
from transformers.models.auto.video_processing_auto import VIDEO_PROCESSOR_MAPPING_NAMES
from vllm.model_executor.models import llava_onevision2  # registers a loader
from vllm.models.minimax_m3.common import mm_preprocess  # registers another
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY, VideoSourceMetadata, VideoTargetMetadata

__all__ = ["llava_onevision2", "mm_preprocess"]

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
        mode = options.get("frame_sample_mode", "uniform_last_frame")
        named = {"frame_sample_mode": None if mode == "every_frame" else mode, "max_fps": None if fps == -1 else fps}
    prepared = loader._prepare_source(VideoSourceMetadata(*source))
    chosen = loader.compute_frames_index_to_sample(prepared, target, **named)
    # These repeat the last frame of an odd number after decoding.
    return [*chosen, *chosen[-1:]] if sampler in {"glmga", "clef_omni"} and len(chosen) % 2 else chosen


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
    loader_of = VIDEO_LOADER_REGISTRY.processor2backend
    types = [
        f"{model_type} {loader_of[classes['torchvision']]}"
        for model_type, classes in VIDEO_PROCESSOR_MAPPING_NAMES.items()
        if classes["torchvision"] in loader_of
    ]
    np.savez(
        answers_path,
        counts=np.array(counts, np.int64),
        indices=np.array(indices, np.int64),
        processors=np.array(processors),
        model_types=np.array(types),
        loaders=np.array(list(VIDEO_LOADER_REGISTRY.name2class)),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
