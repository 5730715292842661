"""Ask vLLM like its users do: `python chat_with_vllm.py ASKED.json ANSWERS.json`.

Each video URL goes through `LLM.chat` alone; a refusal is answered by its words.
"""

import json
import sys
from pathlib import Path

from vllm import LLM, SamplingParams
from vllm.multimodal.video import VIDEO_LOADER_REGISTRY


def ask(llm, messages, allowed):
    parameters = SamplingParams(max_tokens=1, temperature=0, allowed_token_ids=allowed, logprobs=len(allowed))
    try:
        [output] = llm.chat(messages, parameters, use_tqdm=False)
    except Exception as error:  # noqa: BLE001 - what a user would see is the subject
        return {"error": type(error).__name__, "message": str(error)}
    return {"logprobs": {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}}


def main(request_path, answers_path):
    request = json.loads(Path(request_path).read_text())
    llm = LLM(**request["engine"])
    load, data = VIDEO_LOADER_REGISTRY.load("pyav_keyframes").load_bytes, Path(request["video"]).read_bytes()
    answers = {
        "answers": [ask(llm, messages, request["allowed"]) for messages in request["chats"]],
        "metadata": load(data, **request["options"])[1],
        "by its other name": VIDEO_LOADER_REGISTRY.load("pyav_keyframes_v2").load_bytes(data, **request["options"])[1],
        "each once": load(data, repeat_frames=False, **request["options"])[1],
        "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    }
    Path(answers_path).write_text(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
