"""Which files of ours one job crosses on its way from manifest to row: `python -m tools.files_crossed`.

Runs `reelabel classify` on one clip, on services of its own, and records in every process each file of ours in which
a function is called once the file's module is imported.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from tasks.demo.clips import make_demo

ROOT = Path(__file__).parents[1]
# Found by every Python process through PYTHONPATH, before its own code. A process may be killed at any time, so each
# file is written down when it is first crossed.
_RECORDER = """
import os, sys, threading

root, log = {root!r} + os.sep, {log!r}
folders = {folders!r}
seen = set()

def importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "frozen" not in frame.f_code.co_filename:
            back = frame.f_back
            if back is not None and "importlib" in back.f_code.co_filename:
                return True
        frame = frame.f_back
    return False

def record(frame, event, _argument):
    if event != "call":
        return
    name = frame.f_code.co_filename
    if name in seen or not name.startswith(root):
        return
    place = name[len(root):]
    if place.split(os.sep)[0] not in folders or frame.f_code.co_name in ("<module>", "<lambda>") or importing(frame):
        return
    seen.add(name)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (place + "\\n").encode())
    os.close(file)

threading.setprofile(record)
sys.setprofile(record)
"""


def files_crossed() -> list[str]:
    """Classify one clip, and return the files that its three jobs crossed, sorted."""
    folders = [name for name in ("reelabel", "flows", "tasks", "infra", "sql") if (ROOT / name).is_dir()]
    with TemporaryDirectory(prefix="reelabel-") as name:
        folder, log = Path(name), Path(name) / "crossed.txt"
        site = folder / "site"
        site.mkdir()
        recorder = _RECORDER.format(root=str(ROOT), log=str(log), folders=folders)
        (site / "usercustomize.py").write_text(recorder)
        (site / "sitecustomize.py").write_text(recorder)
        make_demo(folder, seed=1, clips=24, uri_prefix=str(folder))
        manifest = folder / "one.parquet"
        pl.read_parquet(folder / "manifest.parquet").head(1).write_parquet(manifest)
        environment = os.environ | {"PYTHONPATH": str(site), "REELABEL_HOME": str(folder / "home")}
        command = [str(Path(sys.executable).with_name("reelabel")), "classify", str(manifest)]
        subprocess.run(command, check=True, env=environment, cwd=folder)  # noqa: S603 - our own command
        return sorted(set(log.read_text().split()))


def main() -> None:
    """Print the files by folder, and their number."""
    crossed = files_crossed()
    for place, count in sorted(Counter(str(Path(name).parent) for name in crossed).items()):
        print(f"{count:4} {place}")  # noqa: T201
    print(f"{len(crossed):4} files")  # noqa: T201


if __name__ == "__main__":
    main()
