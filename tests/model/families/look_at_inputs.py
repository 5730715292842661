"""Builds a tiny model of each family and looks at what its processor makes of a question.

`python look_at_inputs.py FOLDER`: FOLDER/clip.mp4 is shown at the size that each model's card asks for.
FOLDER/seen.json then tells, by family and number of frames, the prompt and the processor's inputs.
"""

import json
import shutil
import sys
from hashlib import blake2b
from pathlib import Path

from infra.settings import Settings
from reelabel.frames.frame_file import decode_frame_file
from reelabel.integrations.vllm.video_input import video_input
from tasks.model.engine.renderer import InputRenderer
from tasks.model.engine.tuning import read_model_profile
from tasks.model.engine.vllm_backend import engine_config
from tasks.model.identity import read_model_card
from tests.model.families.architectures import MAKERS, TEXT_TEMPLATE, save
from tests.model.families.asked import NUM_FRAMES, QUESTION, frame_file

VALUES = ("video_grid_thw", "second_per_grid_ts", "timestamps")


def look(renderer, data):
    video = video_input(decode_frame_file(data))
    prompt = renderer.prompt(QUESTION, video, video_hash=blake2b(data).hexdigest())
    rendered = renderer.render(prompt)
    [inputs] = rendered["mm_kwargs"]["video"]
    found = {name: element.data for name, element in inputs.items()}
    return {
        "chat": prompt["prompt"],
        "frames": list(video[0].shape),
        "prompt": renderer.tokenizer.decode(rendered["prompt_token_ids"]),
        "tokens": len(rendered["prompt_token_ids"]),
        "video_tokens": sum(place.get_num_embeds() for place in rendered["mm_placeholders"]["video"]),
        "shapes": {name: list(value.shape) for name, value in found.items() if hasattr(value, "shape")},
        "values": {name: as_list(found[name]) for name in VALUES if name in found},
    }


def as_list(value):
    return value.tolist() if hasattr(value, "tolist") else value


def main(folder):
    for family in MAKERS:
        save(family, folder / family)
    texts = shutil.copytree(folder / "qwen2_vl", folder / "texts")
    (texts / "chat_template.jinja").write_text(TEXT_TEMPLATE)
    seen = {}
    settings = Settings(sampling={"num_frames": NUM_FRAMES}, model={"dtype": "float32"})
    for family in (*MAKERS, "texts"):
        config = engine_config(read_model_card(str(folder / family)), settings)
        renderer = InputRenderer(config)
        for num_frames in (NUM_FRAMES, 1):
            data = frame_file(folder / family, folder / "clip.mp4", num_frames=num_frames)
            seen[f"{family} {num_frames}"] = look(renderer, data) | {
                "max_tokens": read_model_profile(config).video_tokens(config)
            }
    (folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
