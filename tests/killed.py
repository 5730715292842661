"""What a killed run leaves behind."""

import os
import tempfile
from pathlib import Path


def folder_of_a_killed_run():
    """Leave a temporary folder that no process uses."""
    folder = Path(tempfile.mkdtemp(prefix="reelabel-jobs-"))
    (folder / "00000.arrows").write_bytes(b"rows")
    os.utime(folder, (0, 0))
    return folder
