"""Run Prefect with temporary files of its own: `python -m infra.embedded.worker_main FOLDER ARGUMENTS`.

A Prefect worker makes its folder in `runner_storage`, in the temporary folder, which belongs to the first user of the
machine who has run one: nobody else can write there. What its flow runs write has the usual place.
"""

from __future__ import annotations

import sys
import tempfile

from prefect.cli import app

if __name__ == "__main__":
    tempfile.tempdir = sys.argv.pop(1)
    app()
