"""Questions by PyAV in threads and vLLM: keyframes of every video first, then all questions in one call.

https://docs.vllm.ai/en/stable/features/multimodal_inputs/
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import av
import boto3
import numpy as np
from vllm import LLM, SamplingParams

from benchmarks.peers.scripts.job import QuestionJob, answer, began, pick_evenly, read_questions


def frames_of(uri: str, s3, job: QuestionJob) -> tuple:
    place = urlsplit(uri)
    with tempfile.NamedTemporaryFile(dir=job.folder) as file:
        s3.download_file(place.netloc, place.path[1:], file.name)
        with av.open(file.name) as container:
            stream = container.streams.video[0]
            packets = [p for p in container.demux(stream) if p.pts is not None]
            times = [p.pts for p in packets if p.is_keyframe]
            images, indices = [], []
            for number in pick_evenly(times, job.frames):
                container.seek(times[number], stream=stream)
                frame = next(f for f in container.decode(stream) if f.pts >= times[number])
                images.append(frame.to_ndarray(format="rgb24"))
                indices.append(sum(p.pts < frame.pts for p in packets))
            meta = {"fps": float(stream.average_rate), "frames_indices": indices, "total_num_frames": len(packets)}
            return np.stack(images), meta | {"duration": len(packets) / meta["fps"], "do_sample_frames": False}


def main() -> None:
    job = read_questions()
    s3 = boto3.client("s3", endpoint_url=job.endpoint, aws_access_key_id=job.key, aws_secret_access_key=job.secret)
    llm = LLM(**job.engine)
    tokenizer = llm.get_tokenizer()
    began()
    uris = list(dict.fromkeys(row["uri"] for row in job.rows))
    with ThreadPoolExecutor(2 * job.cores) as threads:
        videos = dict(zip(uris, threads.map(lambda uri: frames_of(uri, s3, job), uris), strict=True))
    requests, parameters = [], []
    for row in job.rows:
        content = [{"type": "video"}, {"type": "text", "text": row["text"]}]
        chat = [{"role": "user", "content": content}]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        requests.append({"prompt": prompt, "multi_modal_data": {"video": [videos[row["uri"]]]}})
        letters = [tokenizer.convert_tokens_to_ids(chr(ord("A") + n)) for n in range(len(row["choices"]))]
        parameters.append(SamplingParams(max_tokens=1, temperature=0, allowed_token_ids=letters))
    for row, output in zip(job.rows, llm.generate(requests, parameters, use_tqdm=False), strict=True):
        answer(row["job_id"], row["choices"][ord(output.outputs[0].text.strip()) - ord("A")])


if __name__ == "__main__":
    main()
