"""Looks at what the processor of each family makes of a question.

`python look_at_inputs.py FOLDER`: FOLDER/inputs.pickle has, by family, the engine's configuration, and frame files by
number of frames. FOLDER/seen.json then tells, by family and number of frames, the prompt and the processor's inputs.
"""

import json
import pickle
import sys
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from types import SimpleNamespace

from vllm.config import VllmConfig, set_current_vllm_config
from vllm.model_executor.layers.rotary_embedding import get_rope

from reelabel.errors import JobError
from reelabel.frames.frame_file import read_frames
from reelabel.integrations.vllm.video_input import video_input
from reelabel_engine.positions import table_length
from reelabel_engine.renderer import HashedMedium, InputRenderer
from tasks.domain import MediaCounts
from tests.model.families.question import NUM_FRAMES, QUESTION

VALUES = ("video_grid_thw", "second_per_grid_ts", "timestamps")


def look(renderer, data):
    video = video_input(read_frames(data))
    prompt = renderer.prompt(QUESTION, [HashedMedium(frames=video, hash=blake2b(data).hexdigest())])
    rendered = renderer.render(prompt)
    [inputs] = rendered["mm_kwargs"]["video"]
    found = {name: element.data for name, element in inputs.items()}
    return {
        "chat": prompt["prompt"],
        "is_encoded_whole": prompt["prompt_token_ids"]
        == renderer.tokenizer.encode(prompt["prompt"], add_special_tokens=False),
        "frames": list(video[0].shape),
        "prompt": renderer.tokenizer.decode(rendered["prompt_token_ids"]),
        "tokens": len(rendered["prompt_token_ids"]),
        "video_tokens": sum(placeholder.get_num_embeds() for placeholder in rendered["mm_placeholders"]["video"]),
        "shapes": {name: list(value.shape) for name, value in found.items() if hasattr(value, "shape")},
        "values": {name: as_list(found[name]) for name in VALUES if name in found},
    }


def special_ids(renderer, data, question):
    """Give the special tokens of a prompt but for those of its video, and the ids of all that follows the video."""
    video = video_input(read_frames(data))
    rendered = renderer.render(renderer.prompt(question, [HashedMedium(frames=video, hash=blake2b(data).hexdigest())]))
    ids = list(rendered["prompt_token_ids"])
    for placeholder in rendered["mm_placeholders"]["video"][::-1]:
        del ids[placeholder.offset : placeholder.offset + placeholder.length]
    return [token for token in ids if token in renderer.tokenizer.added_tokens_decoder], renderer.tokenizer.decode(ids)


def look_at_several(config, data, one, *kinds):
    """Give the tokens of a question that shows files several times, and of each placeholder; or the refusal."""
    counts = MediaCounts(videos=kinds.count("video"), images=kinds.count("image"))
    renderer = InputRenderer(replace(config, max_videos=counts.videos, max_images=counts.images))
    files = [one if kind == "image" else data for kind in kinds]
    media = [HashedMedium.of(kind, file) for kind, file in zip(kinds, files, strict=True)]
    prompt = renderer.prompt(QUESTION, media)
    try:
        rendered = renderer.render(prompt)
    except JobError as error:
        return {"refused": error.message}
    placeholders = [(placeholder, kind) for kind, found in rendered["mm_placeholders"].items() for placeholder in found]
    placeholders.sort(key=lambda found: found[0].offset)
    return {
        "chat": prompt["prompt"],
        "tokens": len(rendered["prompt_token_ids"]),
        "placeholders": [[kind, placeholder.get_num_embeds()] for placeholder, kind in placeholders],
    }


ROTARY = {
    "default": {},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 512},
    "openpangu": {"mrope_interleaved": True},
}


def table_lengths(kind):
    """Give the length of a rotary table as our check has it, and as vLLM makes it."""
    rope = {"rope_type": kind, "rope_theta": 10000.0, "mrope_section": [4, 6, 6], **ROTARY[kind]}
    config = SimpleNamespace(hf_text_config=SimpleNamespace(max_position_embeddings=2048, rope_parameters=rope))
    with set_current_vllm_config(VllmConfig()):
        return table_length(config), len(get_rope(32, 2048, rope_parameters=rope).cos_sin_cache)


def as_list(value):
    return value.tolist() if hasattr(value, "tolist") else value


def main(folder):
    seen = {"rotary tables": {kind: table_lengths(kind) for kind in ROTARY}}
    inputs = pickle.loads((folder / "inputs.pickle").read_bytes())
    for family, (config, files) in inputs.items():
        renderer = InputRenderer(config)
        for num_frames, data in files.items():
            seen[f"{family} {num_frames}"] = look(renderer, data)
        whole, data = files[NUM_FRAMES], files[1]
        seen[f"{family} several"] = look_at_several(config, whole, data, "video", "video")
        if family == "texts":
            seen["texts mixed"] = look_at_several(config, whole, data, "image", "video", "image", "video")
        # Every special token of the tokenizer, in all that a manifest may word.
        spelled = "".join(token.content for token in renderer.tokenizer.added_tokens_decoder.values())
        obeyed = replace(QUESTION, text=f"{spelled}{QUESTION.text}{spelled}", system_prompt=f"Be {spelled}brief.")
        seen[f"{family} specials"] = {
            "spelled": spelled,
            "plain": special_ids(renderer, data, QUESTION)[0],
            "obeyed": special_ids(renderer, data, obeyed),
        }
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
