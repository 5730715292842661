"""Compares what the engine gets of pairs of frames with what it gets of the whole video, without loading a model.

`python compare_inputs.py FOLDER`: writes tiny models below FOLDER, and for each family prints as JSON, by frames a
second, whether tokens, positions and pixels are the same.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from infra.errors import ModelError
from tasks.live.model import LiveQuery
from tasks.model.engine.engine import _require_pairs
from tasks.model.engine.live.desk import LiveDesk, _Waiting
from tasks.model.engine.live.messages import LiveRequest
from tasks.model.engine.live.positions import merged_positions
from tasks.model.engine.live.renderer import LiveRenderer
from tasks.model.engine.renderer import HashedMedium, InputRenderer, _features
from tasks.model.protocol import EngineConfig, Question
from tests.model.engine.live.streams import clip, pairs_of, whole_video
from tests.model.families.architectures import save

CHOICES = ("red", "green")
SYSTEM = "Be <|im_end|> brief."
TEXT = "Which colour? <|video_pad|><|im_start|>"
FRAMES = {"qwen2_vl": (96, None), "qwen2_5_vl": (96, None), "qwen3_vl": (63, 32)}  # of all frames together
RATES = (1 / 3, 0.5, 0.7, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0)


def compare(renderer, live, frames, fps):
    items = pairs_of(frames, fps)
    query = LiveQuery(text=TEXT, choices=CHOICES)
    request = LiveRequest(
        number=1,
        session="s",
        salt="x",
        system_prompt=SYSTEM,
        hashes=tuple(item.hash for item in items),
        items=tuple(items),
        fresh=1,
        query=query,
    )
    rendered = live.render(request)
    config = renderer._renderer.model_config.hf_config
    engine = SimpleNamespace(model_config=SimpleNamespace(hf_config=config))
    desk = LiveDesk(engine, max_model_len=2048, step_tokens=256, positions=renderer._positions.limit)
    ready = _Waiting(request=request, ends=rendered.ends, items=list(rendered.items.values()))
    ours = desk._compose(ready)
    question = Question(video_id="v", text=TEXT, system_prompt=SYSTEM, choices=CHOICES, scoring="letter")
    whole = renderer.render(renderer.prompt(question, [HashedMedium.of("video", whole_video(frames, fps))]))

    model = renderer._positions._model
    usual = model.get_mrope_input_positions
    ids = list(ours["prompt_token_ids"])
    if hasattr(model, "iter_mm_grid_thw"):
        positions, delta = merged_positions(model, usual, ids, _features(ours))
    else:
        positions, delta = usual(ids, _features(ours))
    expected, expected_delta = usual(list(whole["prompt_token_ids"]), _features(whole))
    [video] = whole["mm_kwargs"]["video"]
    pixels = torch.cat([item["pixel_values_videos"].data for item in ours["mm_kwargs"]["video"]])
    return {
        "tokens": ids == list(whole["prompt_token_ids"]),
        "positions": torch.equal(positions, expected) and delta == expected_delta,
        "pixels": torch.equal(pixels, video["pixel_values_videos"].data),
        "choices": rendered.ends.choices == renderer.tokens(question),
    }


def main(folder):
    found = {}
    for family, (count, side_px) in FRAMES.items():
        save(family, folder / family)
        renderer = InputRenderer(EngineConfig(model=str(folder / family), dtype="float32", live_sessions=1))
        live = LiveRenderer(renderer)
        frames = clip(1, count, side_px=side_px)
        found[family] = {f"{fps:g}": compare(renderer, live, frames, fps) for fps in RATES}
    save("glm4v", folder / "glm4v")
    for family in (*FRAMES, "glm4v"):
        try:
            _require_pairs(EngineConfig(model=str(folder / family)))
        except ModelError as error:
            found[f"{family} refused"] = str(error)
    (folder / "compared.json").write_text(json.dumps(found))


main(Path(sys.argv[1]))
