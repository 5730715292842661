"""Ask Ray's LLM processor about videos that `PrepareRequest` prepares, in a process that starts no other Ray."""

import json
import os
import sys
from pathlib import Path

import numpy as np

from reelabel import PrepareRequest
from tasks.demo.clips import Encoding, draw_clip, write_clip
from tasks.demo.shapes import QUESTIONS
from tasks.domain.spec import DEFAULT_TEMPLATE
from tasks.model.identity import TINY_MODEL
from tasks.model.prompts.prompt import render_question
from tests.reelabel.ray_data.conftest import starting_ray

CLIPS = 3
PROMPT, CHOICES = QUESTIONS["colour"]
TEXT = render_question(DEFAULT_TEMPLATE, prompt=PROMPT, choices=CHOICES)
SAMPLING = {"sampler": "keyframes", "num_frames": 6, "size_multiple_px": 28, "max_pixels": 3136}


def ask(row):
    content = [{"type": "video_url", "video_url": {"url": row["video"]}}, {"type": "text", "text": TEXT}]
    return {
        "messages": [{"role": "user", "content": content}],
        "sampling_params": {"max_tokens": 1, "temperature": 0.0},
    }


def answer(ray, folder):
    """Return what the processor answers about clips in a folder, and the truth; the first video is not there."""
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig  # noqa: PLC0415 - imports vLLM

    rng, rows = np.random.default_rng(3), [{"video": "/gone.mp4", "truth": ""}]
    for number in range(CLIPS):
        shape, frames = draw_clip(rng)
        path = folder / f"{number}.mp4"
        write_clip(path, frames, Encoding(container="mp4", codec="libx264", gop=8))
        rows.append({"video": str(path), "truth": shape.colour})
    config = vLLMEngineProcessorConfig(
        model_source=str(TINY_MODEL),
        engine_kwargs={
            "enforce_eager": True,
            "block_size": 32,
            "max_model_len": 2048,
            "limit_mm_per_prompt": {"image": 0, "video": 1},
        },
        placement_group_config={"bundles": [{"CPU": 1}]},  # no GPU
        batch_size=CLIPS,
        tokenize_stage=False,
        detokenize_stage=False,
        log_engine_metrics=False,
        runtime_env={"env_vars": {"VLLM_CPU_KVCACHE_SPACE": "1"}},
    )
    processor = build_processor(
        config,
        preprocess=PrepareRequest(ask, sampling=SAMPLING),
        preprocess_map_kwargs={"num_cpus": 0.25},
        postprocess=lambda row: {"answer": row["generated_text"].strip(), "truth": row["truth"]},
    )

    answered = processor(ray.data.from_items(rows)).take_all()
    return [{name: row.get(name) for name in ("answer", "truth", "__inference_error__")} for row in answered]


if __name__ == "__main__":
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    # One CPU for each stage: with fewer, the stages would wait for each other for ever.
    with starting_ray(cpus=6) as started:
        sys.stdout.write(json.dumps(answer(started, Path(sys.argv[1]))))
