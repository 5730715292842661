"""Prefect's command line for the embedded server and worker: `python -m infra.embedded.prefect_main FOLDER ARGUMENTS`.

Temporary files of Prefect itself are in FOLDER. A worker would make its `runner_storage` in the temporary folder, where
it belongs to the first user of the machine who has run one: nobody else can write there. What flow runs write has the
usual place.
"""

from __future__ import annotations

import atexit
import gc
import sys
import tempfile


def main() -> None:
    """Run Prefect, which imports much that is never garbage: collect rarely, and not once more at the end."""
    gc.set_threshold(10_000, *gc.get_threshold()[1:])
    atexit.register(gc.freeze)
    from prefect.cli import app  # noqa: PLC0415

    tempfile.tempdir = sys.argv.pop(1)
    app()


if __name__ == "__main__":
    main()
