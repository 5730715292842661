"""Answers by Daft's `prompt`, which asks a server; a run that can be resumed is checkpointed, by Daft's Ray runner.

https://docs.daft.ai/en/stable/api/functions/prompt/ and https://docs.daft.ai/en/stable/use-case/checkpointing/
"""

from pathlib import Path

import daft
import ray
from daft.ai.openai.provider import OpenAIProvider
from daft.functions import prompt

from benchmarks.peers.scripts.job import QuestionJob, began, read_job, report_answer
from benchmarks.peers.scripts.questions.server import MODEL, serving


def main() -> None:
    job = read_job(QuestionJob)
    answers, kept = f"{job.folder}/answers", {}
    if job.resumable:
        ray.init(num_cpus=job.cores, include_dashboard=False, log_to_driver=False)
        daft.set_runner_ray()
        store = daft.CheckpointStore(f"file://{job.folder}/checkpoints")
        kept = {"checkpoint": daft.CheckpointConfig(store=store, on="job_id")}
    before = {path.name for path in Path(answers).glob("*.parquet")}
    with serving(job) as url:
        sampling = {name: value for name, value in job.sampling.items() if name != "allowed_token_ids"}
        letter = prompt(
            [daft.col("url"), daft.col("text")],
            provider=OpenAIProvider(name="vllm", base_url=url, api_key="none"),
            model=MODEL,
            use_chat_completions=True,
            extra_body={"allowed_token_ids": job.sampling["allowed_token_ids"]},
            **sampling,
        )
        questions = daft.read_parquet(f"{job.table}/*.parquet", **kept)
        began()
        answered = questions.select("job_id", letter.alias("letter"))
        answered.write_parquet(answers, write_mode="append" if job.resumable else "overwrite")
    for row in daft.read_parquet(f"{answers}/*.parquet", file_path_column="path").iter_rows():
        report_answer(row["job_id"], row["letter"].strip(), is_new=Path(row["path"]).name not in before)


if __name__ == "__main__":
    main()
