"""Answers by Ray Data's processor of HTTP requests, which asks a server.

The multimodal stage of its vLLM processor cannot be used beside vLLM 0.32: it imports `vllm.entrypoints.chat_utils`,
which has gone from there. https://docs.ray.io/en/latest/data/working-with-llms.html; its checkpoints are those of
https://docs.ray.io/en/latest/data/api/doc/ray.data.checkpoint.interfaces.CheckpointConfig.html
"""

import logging
from pathlib import Path

import polars as pl
import ray
from ray.data import SaveMode
from ray.data.checkpoint import CheckpointConfig
from ray.data.llm import HttpRequestProcessorConfig, build_processor

from benchmarks.peers.scripts.job import QuestionJob, began, read_job, report_answer
from benchmarks.peers.scripts.questions.server import MODEL, serving

CPUS = 8  # with fewer, its stages wait for each other
AT_MOST_PER_S = 1000  # without a rate, it asks one question after the other


def main() -> None:
    job = read_job(QuestionJob)
    answers = Path(job.folder) / "answers"
    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    if job.resumable:
        context.checkpoint_config = CheckpointConfig("job_id", f"{job.folder}/checkpoints")
    before = set(answers.glob("*.parquet"))

    def ask(row):
        content = [{"type": "video_url", "video_url": {"url": row["url"]}}, {"type": "text", "text": row["text"]}]
        return {"payload": {"model": MODEL, "messages": [{"role": "user", "content": content}], **job.sampling}}

    def answer(row):
        return {"job_id": row["job_id"], "letter": row["http_response"]["choices"][0]["message"]["content"]}

    with serving(job) as url:
        config = HttpRequestProcessorConfig(
            url=f"{url}/chat/completions", qps=AT_MOST_PER_S, batch_size=50, concurrency=job.cores
        )
        processor = build_processor(config, preprocess=ask, postprocess=answer)
        mode = SaveMode.APPEND if job.resumable else SaveMode.OVERWRITE
        began()
        processor(ray.data.read_parquet(job.table)).write_parquet(str(answers), mode=mode)
    for path in answers.glob("*.parquet"):
        for job_id, letter in pl.read_parquet(path).select("job_id", "letter").iter_rows():
            report_answer(job_id, letter.strip(), is_new=path not in before)


if __name__ == "__main__":
    main()
