"""Answers by Ray Data's vLLM processor, whose multimodal stage loads videos as vLLM does.

https://docs.ray.io/en/latest/data/working-with-llms.html, its checkpoints are those of
https://docs.ray.io/en/latest/data/api/doc/ray.data.checkpoint.interfaces.CheckpointConfig.html
"""

import logging
import os
from pathlib import Path

import ray
from ray.data import SaveMode
from ray.data.checkpoint import CheckpointConfig
from ray.data.llm import build_processor, vLLMEngineProcessorConfig

from benchmarks.peers.scripts.job import QuestionJob, began, read_job, report_answer
from benchmarks.peers.scripts.questions.server import loading

CPUS = 8  # with fewer, its stages and the engine wait for each other


def main() -> None:
    job = read_job(QuestionJob)
    answers = Path(job.folder) / "answers"
    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    if job.resumable:
        context.checkpoint_config = CheckpointConfig("job_id", f"{job.folder}/checkpoints")
    before = set(answers.glob("*.parquet"))
    config = vLLMEngineProcessorConfig(
        model_source=job.model,
        engine_kwargs=dict(job.engine),
        placement_group_config={"bundles": [{"CPU": 1}]},  # no GPU
        batch_size=32,
        prepare_multimodal_stage={
            "model_config_kwargs": {"media_io_kwargs": loading(job), "max_model_len": job.engine["max_model_len"]},
            "chat_template_content_format": "openai",
        },
        tokenize_stage=False,
        detokenize_stage=False,
        log_engine_metrics=False,
        should_continue_on_error=True,
        runtime_env={"env_vars": {name: value for name, value in os.environ.items() if name.startswith("VLLM_")}},
    )

    def ask(row):
        video = {"type": "video_url", "video_url": {"url": row["url"]}, "uuid": row["video_uri"]}
        content = [video, {"type": "text", "text": row["text"]}]
        return {"messages": [{"role": "user", "content": content}], "sampling_params": job.sampling}

    processor = build_processor(
        config,
        preprocess=ask,
        postprocess=lambda row: {"job_id": row["job_id"], "letter": row["generated_text"]},
    )
    began()
    mode = SaveMode.APPEND if job.resumable else SaveMode.OVERWRITE
    processor(ray.data.read_parquet(job.table)).write_parquet(str(answers), mode=mode)
    for path in answers.glob("*.parquet"):
        for row in ray.data.read_parquet(str(path)).iter_rows():
            report_answer(row["job_id"], row["letter"].strip(), is_new=path not in before)


if __name__ == "__main__":
    main()
