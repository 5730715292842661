"""Answers by vLLM's `LLM`, of frames that PyAV decodes in threads while the model is loaded.

https://docs.vllm.ai/en/stable/features/multimodal_inputs/ and
https://docs.vllm.ai/en/stable/features/automatic_prefix_caching/
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import av
import boto3
import numpy as np
import polars as pl
from vllm import LLM, SamplingParams

from benchmarks.peers.scripts.job import QuestionJob, began, pick_evenly, read_job, report_answer, report_progress


def frames_of(uri: str, s3, job: QuestionJob):
    """Return keyframes, and their metadata for the model."""
    place = urlsplit(uri)
    with tempfile.NamedTemporaryFile(suffix=".mp4", dir=job.folder) as file:
        s3.download_file(place.netloc, place.path[1:], file.name)
        with av.open(file.name) as container:
            stream = container.streams.video[0]
            times = [packet.pts for packet in container.demux(stream) if packet.is_keyframe]
            images, shown = [], []
            for number in pick_evenly(times, job.frames):
                container.seek(times[number], stream=stream)
                images.append(next(container.decode(stream)).to_ndarray(format="rgb24"))
                shown.append(round(times[number] * stream.time_base * stream.average_rate))
            metadata = {"fps": float(stream.average_rate), "duration": float(stream.duration * stream.time_base)}
            metadata |= {"total_num_frames": stream.frames, "frames_indices": shown, "do_sample_frames": False}
            return np.stack(images), metadata


def main() -> None:
    job = read_job(QuestionJob)
    questions = pl.read_parquet(f"{job.table}/*.parquet")
    s3 = boto3.client("s3", endpoint_url=job.endpoint, aws_access_key_id=job.key, aws_secret_access_key=job.secret)
    with ThreadPoolExecutor(job.cores) as threads:
        uris = questions["video_uri"].unique(maintain_order=True).to_list()
        videos = {uri: threads.submit(frames_of, uri, s3, job) for uri in uris}
        llm = LLM(job.model, **job.engine)
        began()
        requests = []
        for uri, text in questions.select("video_uri", "text").iter_rows():
            content = [{"type": "video"}, {"type": "text", "text": text}]
            prompt = llm.get_tokenizer().apply_chat_template(
                [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
            )
            request = {"prompt": prompt, "multi_modal_data": {"video": [videos[uri].result()]}}
            requests.append(request | {"multi_modal_uuids": {"video": [uri]}})
    outputs = llm.generate(requests, SamplingParams(**job.sampling), use_tqdm=False)
    report_progress(len(outputs))  # by which the bench kills a run: there is no sooner sign
    for job_id, output in zip(questions["job_id"], outputs, strict=True):
        report_answer(job_id, output.outputs[0].text.strip())


if __name__ == "__main__":
    main()
