"""Ask vLLM like its users do, and render as our engine does: `python chat_about_media.py ASKED.pickle TOLD.json`.

ASKED.pickle holds questions with their frame files; videos are given to `LLM.chat` as frame files, images as PNGs.
TOLD.json then has, for each question, the tokens of both prompts, and vLLM's logprobs.
"""

import base64
import json
import pickle
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from vllm import LLM

from reelabel.frames.frame_file import read_frames
from reelabel_engine.arguments import vllm_arguments
from reelabel_engine.renderer import HashedMedium, InputRenderer
from reelabel_engine.vllm_api import scoring_parameters


def part_of(kind, data):
    if kind == "video":
        url = "data:application/vnd.apache.arrow.file;base64," + base64.b64encode(data).decode()
    else:
        file = BytesIO()
        Image.fromarray(read_frames(data).unique[0]).save(file, "png")
        url = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    return {"type": f"{kind}_url", f"{kind}_url": {"url": url}}


def chat(llm, shown, question, allowed):
    content = [*(part_of(*each) for each in shown), {"type": "text", "text": question.text}]
    parameters = scoring_parameters((frozenset(allowed),))
    [output] = llm.chat([{"role": "user", "content": content}], parameters, use_tqdm=False)
    return {
        "chat": output.prompt_token_ids,
        "logprobs": {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()},
    }


def main(questions_path, results_path):
    config, frame_files, questions, allowed = pickle.loads(Path(questions_path).read_bytes())
    renderer, results = InputRenderer(config), []
    for question in questions:
        media = [HashedMedium.of(each.kind, frame_files[each.file_id]) for each in question.shown]
        results.append({"ours": renderer.render(renderer.prompt(question, media))["prompt_token_ids"]})
    media_io = {"video": {"video_backend": "reelabel_frames"}}
    llm = LLM(**vllm_arguments(config) | {"media_io_kwargs": media_io})
    for question, found in zip(questions, results, strict=True):
        shown = [(each.kind, frame_files[each.file_id]) for each in question.shown]
        found.update(chat(llm, shown, question, allowed))
    Path(results_path).write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
