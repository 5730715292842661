"""Questions by vLLM alone: `LLM.chat` with signed URLs, and its own loader of videos.

https://docs.vllm.ai/en/stable/features/multimodal_inputs/
"""

from urllib.parse import urlsplit

import boto3
from vllm import LLM, SamplingParams

from benchmarks.peers.scripts.job import answer, began, read_questions


def main() -> None:
    job = read_questions()
    s3 = boto3.client("s3", endpoint_url=job.endpoint, aws_access_key_id=job.key, aws_secret_access_key=job.secret)
    llm = LLM(**job.engine, media_io_kwargs={"video": {"num_frames": job.frames}})
    tokenizer = llm.get_tokenizer()
    began()
    chats, parameters = [], []
    for row in job.rows:
        place = urlsplit(row["uri"])
        url = s3.generate_presigned_url("get_object", {"Bucket": place.netloc, "Key": place.path[1:]})
        content = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": row["text"]}]
        chats.append([{"role": "user", "content": content}])
        letters = [tokenizer.convert_tokens_to_ids(chr(ord("A") + n)) for n in range(len(row["choices"]))]
        parameters.append(SamplingParams(max_tokens=1, temperature=0, allowed_token_ids=letters))
    for row, output in zip(job.rows, llm.chat(chats, parameters, use_tqdm=False), strict=True):
        answer(row["job_id"], row["choices"][ord(output.outputs[0].text.strip()) - ord("A")])


if __name__ == "__main__":
    main()
