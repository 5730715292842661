"""Answers by Pixeltable: a computed column of a table, filled by a server.

Its own functions for OpenAI's API ask one question after the other of a server that sends no headers of rate limits, so
that a function of the user's own asks here: https://docs.pixeltable.com/platform/udfs-in-pixeltable. What is computed
again when rows change: https://docs.pixeltable.com/tutorials/computed-columns
"""

import os

import polars as pl

from benchmarks.peers.scripts.job import QuestionJob, began, read_job, report_answer
from benchmarks.peers.scripts.questions.server import MODEL, serving

PART = 50


def main() -> None:
    job = read_job(QuestionJob)
    rows = pl.read_parquet(f"{job.table}/*.parquet").select("job_id", "url", "text")
    with serving(job) as address:
        os.environ |= {"PIXELTABLE_HOME": f"{job.folder}/home", "OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"}
        import pixeltable as pxt  # noqa: PLC0415 - reads its settings when it is imported

        from benchmarks.peers.scripts.questions.pixeltable_ask import ask  # noqa: PLC0415

        sampling = {name: value for name, value in job.sampling.items() if name != "allowed_token_ids"}
        sampling["extra_body"] = {"allowed_token_ids": job.sampling["allowed_token_ids"]}
        pxt.create_dir("bench", if_exists="ignore")
        columns = {"job_id": pxt.Required[pxt.String], "url": pxt.String, "text": pxt.String}
        table = pxt.create_table("bench/questions", columns, primary_key="job_id", if_exists="ignore")
        table.add_computed_column(letter=ask(table.url, table.text, model=MODEL, sampling=sampling), if_exists="ignore")
        began()
        known = {row["job_id"]: row["text"] for row in table.select(table.job_id, table.text).collect()}
        new = rows.filter(~pl.col("job_id").is_in(list(known))).to_dicts()
        changed = [row for row in rows.to_dicts() if known.get(row["job_id"], row["text"]) != row["text"]]
        size = PART if job.resumable else max(1, len(new))  # an insert that dies leaves none of its rows
        for first in range(0, len(new), size):
            table.insert(new[first : first + size], on_error="ignore")
        if changed:
            table.batch_update(changed)
        asked = {row["job_id"] for row in (*new, *changed)}
        for row in table.select(table.job_id, table.letter, error=table.letter.errormsg).collect():
            letter, error = row["letter"] or "", row["error"] or ""
            report_answer(row["job_id"], letter.strip(), is_new=row["job_id"] in asked, error=error)


if __name__ == "__main__":
    main()
