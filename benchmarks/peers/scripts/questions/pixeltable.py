"""Answers by Pixeltable: a computed column of a table, filled by a server through its OpenAI functions.

https://docs.pixeltable.com/tutorials/computed-columns and https://docs.pixeltable.com/sdk/latest/openai
"""

import os

import polars as pl

from benchmarks.peers.scripts.job import QuestionJob, began, read_job, report_answer
from benchmarks.peers.scripts.questions.server import MODEL, serving


def main() -> None:
    job = read_job(QuestionJob)
    rows = pl.read_parquet(f"{job.table}/*.parquet").select("job_id", "url", "text")
    with serving(job) as url:
        os.environ |= {"PIXELTABLE_HOME": f"{job.folder}/home", "OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        import pixeltable as pxt  # noqa: PLC0415 - reads its settings when it is imported
        from pixeltable.functions.openai import chat_completions  # noqa: PLC0415

        pxt.create_dir("bench", if_exists="ignore")
        columns = {"job_id": pxt.Required[pxt.String], "url": pxt.String, "text": pxt.String}
        table = pxt.create_table("bench/questions", columns, primary_key="job_id", if_exists="ignore")
        content = [
            {"type": "video_url", "video_url": {"url": table.url}},
            {"type": "text", "text": table.text},
        ]
        sampling = {name: value for name, value in job.sampling.items() if name != "allowed_token_ids"}
        sampling["extra_body"] = {"allowed_token_ids": job.sampling["allowed_token_ids"]}
        answer = chat_completions([{"role": "user", "content": content}], model=MODEL, model_kwargs=sampling)
        table.add_computed_column(answer=answer, if_exists="ignore")
        began()
        known = {row["job_id"]: row["text"] for row in table.select(table.job_id, table.text).collect()}
        new = rows.filter(~pl.col("job_id").is_in(list(known)))
        if len(new):
            table.insert(new.to_dicts(), on_error="ignore")
        changed = [row for row in rows.to_dicts() if known.get(row["job_id"], row["text"]) != row["text"]]
        if changed:
            table.batch_update(changed)
        asked = {row["job_id"] for row in (*new.to_dicts(), *changed)}
        answers = table.select(
            table.job_id, letter=table.answer.choices[0].message.content, error=table.answer.errormsg
        )
        for row in answers.collect():
            report_answer(
                row["job_id"],
                (row["letter"] or "").strip(),
                is_new=row["job_id"] in asked,
                error=row["error"] or "",
            )


if __name__ == "__main__":
    main()
