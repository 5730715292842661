"""Renders prompts by the shortcut and by vLLM, and reports where they differ.

`python compare_layouts.py FOLDER`: models of several families are built there. FOLDER/compared.json then
tells, by family and type of numbers, of each prompt whether the shortcut took it, and whether both ways gave the same.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from reelabel.errors import JobError
from reelabel_engine.protocol import EngineConfig
from reelabel_engine.renderer import HashedMedium, InputRenderer
from tests.model.families.architectures import save
from tests.model.families.question import QUESTION

FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
DTYPES = ("float32", "bfloat16")
TEXTS = (QUESTION.text, "Is it there?\nA. yes\nB. no", "What is <|video_pad|>?\nA. a token\nB. a video")
# By what is shown: shape of the frames.
SHAPES = {
    "even": (6, 84, 112, 3),
    "odd": (5, 84, 112, 3),
    "alone": (1, 84, 112, 3),
    "scaled": (6, 90, 100, 3),
    "too large": (6, 280, 280, 3),
}
VIDEOS = 5


def video(shape, number, rng):
    total, fps = 100 + 13 * number, (12.0, 25.0, 29.97, 1000.0, 7.5)[number]
    return rng.integers(0, 256, shape, np.uint8), {
        "fps": fps,
        "duration": total / fps,
        "total_num_frames": total,
        "frames_indices": sorted(rng.choice(total, shape[0]).tolist()),
        "video_backend": "reelabel",
        "do_sample_frames": False,
    }


def is_same(ours, theirs):
    values = [
        {name: element.data for name, element in each["mm_kwargs"]["video"][0].items()} for each in (ours, theirs)
    ]
    plain = ("type", "prompt", "prompt_token_ids", "mm_hashes", "mm_placeholders")
    return (
        ours.keys() == theirs.keys()
        and all(ours[name] == theirs[name] for name in plain)
        and values[0].keys() == values[1].keys()
        and all(
            torch.equal(torch.as_tensor(value), torch.as_tensor(values[1][name])) for name, value in values[0].items()
        )
    )


def compare(renderer, shape, rng):
    for number in range(VIDEOS):
        shown = video(shape, number, rng)
        for text in TEXTS[: 2 if number else 3]:
            prompt = renderer.prompt(
                replace(QUESTION, text=text), [HashedMedium(frames=shown, hash=f"{shape} {number}")]
            )
            try:
                ours = renderer._shortcut.render(prompt)
                theirs = renderer._render_with_vllm(prompt)
            except JobError as error:
                yield {"video": number, "refused": str(error)}
                continue
            yield {"video": number, "taken": ours is not None, "same": ours is None or is_same(ours, theirs)}
            renderer.render(prompt)


def main(folder):
    compared = {}
    for family in FAMILIES:
        save(family, folder / family)
        for dtype in DTYPES:
            renderer = InputRenderer(EngineConfig(model=str(folder / family), dtype=dtype))
            rng = np.random.default_rng(0)
            shown = {name: list(compare(renderer, shape, rng)) for name, shape in SHAPES.items()}
            compared[f"{family} {dtype}"] = shown
    (folder / "compared.json").write_text(json.dumps(compared))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
