"""Compares what the engine gets of pairs of frames with what it gets of the whole video, without loading a model.

`python compare_inputs.py FOLDER`: writes tiny models below FOLDER, and for each family prints as JSON, by frames a
second, whether tokens, positions and pixels are the same. Of Qwen2.5-Omni, with audio, it is compared with the video
and its audio as vLLM lays them out itself (`use_audio_in_video`), and with the positions of transformers: those of vLLM
0.32 are one token off, as they leave out the mark at which audio begins.
"""

import json
import sys
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import torch

from reelabel_engine.engine import _require_pairs, live_input
from reelabel_engine.errors import ModelError
from reelabel_engine.live.renderer import LiveRenderer
from reelabel_engine.live.scheduler import LiveScheduler
from reelabel_engine.live_items import AUDIO_HZ
from reelabel_engine.positions import mrope_positions, positions_per_s
from reelabel_engine.protocol import EngineConfig, LiveQuery, LiveRequest, Question
from reelabel_engine.renderer import HashedMedium, InputRenderer
from reelabel_engine.vllm_api import MultiModalFeatureSpec, get_model_cls
from tasks.live.window import AudioSpans, FramePairs
from tests.model.engine.live.streams import clip, pairs_of, whole_video
from tests.model.families.architectures import make_qwen2_5_omni, save

CHOICES = ("red", "green")
SYSTEM = "Be <|im_end|> brief."
TEXT = "Which colour? <|video_pad|><|im_start|>"
FRAMES = {"qwen2_vl": (96, None), "qwen2_5_vl": (96, None), "qwen3_vl": (63, 32)}  # of all frames together
RATES = (1 / 3, 0.5, 0.7, 1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0)


def request_of(items, query, *, has_audio=False):
    return LiveRequest(
        number=1,
        session="s",
        salt="x",
        system_prompt=SYSTEM,
        hashes=tuple(item.hash for item in items),
        items={item.hash: item for item in items},
        fresh=1,
        query=query,
        has_audio=has_audio,
    )


def positions_model(renderer):
    """A model without weights: to number positions, its method needs the configuration alone."""
    kind = get_model_cls(renderer._renderer.model_config)
    model = kind.__new__(kind)
    vars(model)["config"] = getattr(renderer.hf_config, "thinker_config", renderer.hf_config)
    return model


def laid_out(renderer, request, parts, ends):
    """Return what the engine would get of a rendered request."""
    added = []
    scheduler = LiveScheduler(
        lambda _, prompt: added.append(live_input(prompt)),
        None,
        max_model_len=4096,
        step_tokens=256,
        positions=renderer.positions,
        positions_per_s=positions_per_s(renderer.hf_config),
    )
    scheduler.items.expect(request.session, request.items)
    scheduler.receive(request, parts, ends)
    return added[0]


def _features(rendered):
    features = [
        MultiModalFeatureSpec(data=item, modality=modality, identifier="", mm_position=placeholder)
        for modality, placeholders in rendered["mm_placeholders"].items()
        for item, placeholder in zip(rendered["mm_kwargs"][modality], placeholders, strict=True)
    ]
    return sorted(features, key=lambda feature: feature.mm_position.offset)


def compare(renderer, live, frames, fps):
    items = pairs_of(frames, fps)
    request = request_of(items, LiveQuery(text=TEXT, choices=CHOICES))
    parts, ends = live.render(request)
    ours = laid_out(renderer, request, parts, ends)
    question = Question(video_id="v", text=TEXT, system_prompt=SYSTEM, choices=CHOICES, scoring="letter")
    whole = renderer.render(renderer.prompt(question, [HashedMedium.of("video", whole_video(frames, fps))]))

    model = positions_model(renderer)
    usual = model.get_mrope_input_positions
    ids = list(ours["prompt_token_ids"])
    if hasattr(model, "iter_mm_grid_thw"):
        known = {}  # filled by the prompt without the last pair, as when frames arrive
        named = [replace(each, identifier=item.hash) for each, item in zip(_features(ours), items, strict=True)]
        mrope_positions(model, usual, ids, named[:-1], known=known)
        positions, delta = mrope_positions(model, usual, ids, named, known=known)
    else:
        positions, delta = usual(ids, _features(ours))
    expected, expected_delta = usual(list(whole["prompt_token_ids"]), _features(whole))
    [video] = whole["mm_kwargs"]["video"]
    pixels = torch.cat([item["pixel_values_videos"].data for item in ours["mm_kwargs"]["video"]])
    return {
        "tokens": ids == list(whole["prompt_token_ids"]),
        "positions": torch.equal(positions, expected) and delta == expected_delta,
        "pixels": torch.equal(pixels, video["pixel_values_videos"].data),
        "choices": ends.choices == renderer.tokens(question),
    }


def compare_audio(folder):
    save("qwen2_5_omni", folder)
    renderer = InputRenderer(EngineConfig(model=str(folder), dtype="float32", live_sessions=1))
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (8, 84, 84, 3), np.uint8)
    audio = rng.normal(0, 3000, 4 * AUDIO_HZ).astype(np.int16)
    pairs, spans, items = FramePairs(), AudioSpans(), []
    for number, image in enumerate(frames):
        items += pairs.add(image, number / 2)
        items += spans.add(audio[number * AUDIO_HZ // 2 :][: AUDIO_HZ // 2], number / 2)
    request = request_of(items, LiveQuery(text=TEXT), has_audio=True)
    parts, ends = LiveRenderer(renderer).render(request)
    ours = laid_out(renderer, request, parts, ends)
    ids = list(ours["prompt_token_ids"])
    model = positions_model(renderer)
    positions, _ = mrope_positions(model, model.get_mrope_input_positions, ids, _features(ours))

    chat = renderer.render_chat(TEXT, SYSTEM, ("video",))
    prompt = {
        "prompt": chat.text,
        "prompt_token_ids": list(chat.token_ids),
        "multi_modal_data": {
            "video": [(frames, {"fps": 2.0, "duration": 4.0, "total_num_frames": 8, "frames_indices": list(range(8))})],
            "audio": [(audio / np.float32(2**15), AUDIO_HZ)],
        },
        "mm_processor_kwargs": {"use_audio_in_video": True},
    }
    [whole] = renderer._renderer.render_cmpl([prompt], skip_mm_cache=True)
    [video], [audio] = (whole["mm_kwargs"][kind] for kind in ("video", "audio"))
    expected, _ = make_qwen2_5_omni()[0].get_rope_index(
        torch.tensor([ids]),
        video_grid_thw=video["video_grid_thw"].data[None],
        attention_mask=torch.ones(1, len(ids), dtype=torch.long),
        use_audio_in_video=True,
        audio_seqlens=audio["audio_feature_lengths"].data[None],
        second_per_grids=video["second_per_grid_ts"].data[None],
    )
    config = renderer.hf_config.thinker_config
    kinds = [config.video_token_index, config.audio_token_index]
    shown = torch.isin(torch.tensor(ids), torch.tensor(kinds))
    first = int(shown.nonzero()[0])
    ours_shown, theirs_shown = (each[:, shown] - each[:, first : first + 1] for each in (positions, expected[:, 0]))
    spectra = torch.cat([item["input_audio_features"].data for item in ours["mm_kwargs"]["audio"]], -1)
    differing = ((spectra - audio["input_audio_features"].data).abs() > 1e-3).any(0).nonzero().flatten().tolist()
    pixels = torch.cat([item["pixel_values_videos"].data for item in ours["mm_kwargs"]["video"]])
    return {
        "tokens": ids == list(whole["prompt_token_ids"]),
        "runs": [
            (config.video_token_index == token, len(list(run)))
            for token, run in groupby(token for token in ids if token in kinds)
        ],
        "positions": torch.equal(ours_shown, theirs_shown.long()),
        "pixels": torch.equal(pixels, video["pixel_values_videos"].data),
        "differing": differing,
    }


def main(folder):
    found = {"audio": compare_audio(folder / "qwen2_5_omni")}
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
