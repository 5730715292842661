"""Answers by `reelabel classify`: one command with its settings, and another one that prints the labels."""

import csv
import json
import os
import re
import subprocess
import sys
from contextlib import suppress

from benchmarks.peers.scripts.job import QuestionJob, began, read_job, report_answer, report_progress

REELABEL = [sys.executable, "-P", "-m", "flows.cli"]
COUNTED = [sys.executable, "-P", "-m", "benchmarks.peers.scripts.counted"]  # in which the bench counts frames
SHARD = re.compile(r"Shard \d+: (\d+) labels")


def main() -> None:
    job = read_job(QuestionJob)
    os.environ |= {
        "REELABEL_HOME": f"{job.folder}/home",
        "REELABEL_STORE_URI": f"file://{job.folder}/store",
        "REELABEL_STORE_ENDPOINT_URL": job.endpoint,
        "REELABEL_STORE_ACCESS_KEY_ID": job.key,
        "REELABEL_STORE_SECRET_ACCESS_KEY": job.secret,
        "REELABEL_MODEL_NAME": job.model,
        "REELABEL_MODEL_DTYPE": job.engine["dtype"],
        "REELABEL_SAMPLING_NUM_FRAMES": str(job.frames),
        "REELABEL_LOG_FORMAT": "json",
    }
    run_id, written = "", 0
    with subprocess.Popen(
        [*COUNTED, "classify", f"{job.table}/*.parquet", "--dataset", "bench"], stderr=subprocess.PIPE
    ) as run:
        for line in run.stderr:
            sys.stderr.buffer.write(line)
            with suppress(ValueError):
                record = json.loads(line)
                run_id = record.get("run") or run_id
                if record["message"].startswith("The engine is ready"):
                    began()
                elif shard := SHARD.match(record["message"]):  # by which the bench kills a run halfway
                    written += int(shard[1])
                    report_progress(written)
    if run.returncode:
        sys.exit(run.returncode)
    labels = subprocess.run(
        [*REELABEL, "results", "last", "--format", "csv"], check=True, text=True, stdout=subprocess.PIPE
    )
    for row in csv.DictReader(labels.stdout.splitlines()):
        letter = "ABCD"[int(row["choice_index"])] if row["choice_index"] else ""
        report_answer(row["job_id"], letter, is_new=row["run_id"] == run_id, error=row["message"])


if __name__ == "__main__":
    main()
