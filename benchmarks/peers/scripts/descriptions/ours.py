"""Descriptions by `reelabel describe`, and moments by `reelabel search`: commands with their settings."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.scripts.job import DescriptionJob, began, read_job, report_found, report_tag

REELABEL = [sys.executable, "-P", "-m", "flows.cli"]
COUNTED = [sys.executable, "-P", "-m", "benchmarks.peers.scripts.counted"]  # in which the bench counts frames


def main() -> None:
    job = read_job(DescriptionJob)
    os.environ |= {
        "REELABEL_HOME": f"{job.folder}/home",
        "REELABEL_STORE_URI": f"file://{job.folder}/store",
        "REELABEL_STORE_ENDPOINT_URL": job.endpoint,
        "REELABEL_STORE_ACCESS_KEY_ID": job.key,
        "REELABEL_STORE_SECRET_ACCESS_KEY": job.secret,
        "REELABEL_DESCRIBE_MODEL": job.model,
        "REELABEL_LOG_FORMAT": "json",
    }
    bank = Path(job.folder) / "texts.txt"
    bank.write_text("\n".join(job.texts))
    if job.searched:
        began()  # though it loads the model yet
        for row in rows_of("search", "--bank", str(bank), "--top", "1", "--format", "csv"):
            report_found(row["text"], row["video_uri"])
        return
    chosen = ["--dataset", "bench", "--tags", str(bank), "--scene-method", "ema"]
    command = [*COUNTED, "describe", job.table, *chosen]
    with subprocess.Popen(command, stdout=sys.stderr, stderr=subprocess.PIPE) as run:
        for line in run.stderr:
            sys.stderr.buffer.write(line)
            if b"The model is ready" in line:
                began()
    if run.returncode:
        sys.exit(run.returncode)
    for row in rows_of("results", "last", "--format", "csv"):
        report_tag(
            row["video_uri"], json.loads(row["tags"])[0]["text"], vectors=int(row["frames_used"]), error=row["message"]
        )


def rows_of(*command: str):
    done = subprocess.run([*REELABEL, *command], check=True, text=True, stdout=subprocess.PIPE)
    return csv.DictReader(done.stdout.splitlines())


if __name__ == "__main__":
    main()
