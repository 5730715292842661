"""Lists our files that a job passes through from manifest to row: `python -m tools.files_crossed`.

Runs `reelabel classify` twice on services that already run: on VIDEOS clips with one job each, then on twice as many.
Every process of a run counts the calls of our functions. A file is on a job's way if it has a function that the second
run calls at least once more for each further job. Functions called once per run, shard, process or second do not count;
nor do alternatives to what was used: here, H.264 in MP4 files, the embedded S3 server and vLLM. On a busy machine,
whose second run may be slower, functions called periodically may count, too.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import venv
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl

from tasks.demo.clips import ENCODINGS, make_demo
from tasks.model.identity import TINY_MODEL

ROOT = Path(__file__).parents[1]
FOLDERS = ("reelabel", "flows", "tasks", "infra", "sql")
VIDEOS = 24
_ENTRY = struct.Struct("<Qd112s")  # calls, time of the last one, place
_ENTRIES = 8192
_LOST = 0.1  # two threads may count as one, and the last jobs of a run share calls
# Every Python process runs this before its own code. Its table is in a mapped file, because a process may be killed at
# any time, and a sandboxed one cannot open files.
_RECORDER = """
import mmap, os, sys, threading, time
from struct import Struct

root, log, folders = {root!r} + os.sep, {log!r}, {folders!r}
entry, entries = Struct({layout!r}), {entries!r}
table, slots, free = None, {{}}, 0

def open_table():
    global table, slots, free
    path = f"{{log}}/{{os.getpid()}}-{{time.monotonic_ns()}}"
    with open(path, "wb+") as file:
        file.truncate(entries * entry.size)
        table, slots, free = mmap.mmap(file.fileno(), 0), {{}}, 0

def importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "frozen" not in frame.f_code.co_filename:
            back = frame.f_back
            if back is not None and "importlib" in back.f_code.co_filename:
                return True
        frame = frame.f_back
    return False

def find_slot(frame):
    global free
    code = frame.f_code
    place = code.co_filename[len(root):] if code.co_filename.startswith(root) else ""
    if place.split(os.sep)[0] not in folders or code.co_name[0] == "<":
        slots[code] = None
    elif importing(frame):
        return None
    else:
        slots[code] = free
        entry.pack_into(table, free * entry.size, 0, 0.0, f"{{place}}:{{code.co_qualname}}".encode()[:112])
        free += 1
    return slots[code]

def record(frame, event, _argument):
    if event != "call":
        return
    slot = slots[frame.f_code] if frame.f_code in slots else find_slot(frame)
    if slot is not None:
        calls, _, place = entry.unpack_from(table, slot * entry.size)
        entry.pack_into(table, slot * entry.size, calls + 1, time.monotonic(), place)

open_table()
os.register_at_fork(after_in_child=open_table)
threading.setprofile(record)
sys.setprofile(record)
"""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one function: their number, and when the last one was."""

    count: int
    last_s: float


def count_calls(folder: Path, videos: int) -> dict[str, Calls]:
    """Classify one job on each of `videos` clips; return the calls of each `file:function`, in all processes."""
    log = folder / f"calls-{videos}"
    log.mkdir()
    manifest = _make_manifest(folder / f"clips-{videos}", videos)
    python = _make_environment(folder / f"python-{videos}", log)
    _reelabel(folder, python, "classify", str(manifest))
    return _read(log)


def _make_manifest(folder: Path, videos: int) -> Path:
    """Write a manifest of one job on each of `videos` clips of the same container and codec."""
    clips = make_demo(folder, seed=videos, clips=3 * videos)
    suffix = pl.col("video_uri").str.ends_with(f"{ENCODINGS[0].container}")
    manifest = folder / f"jobs-{videos}.parquet"
    clips.filter(suffix).unique("video_uri", keep="first", maintain_order=True).head(videos).write_parquet(manifest)
    return manifest


def _make_environment(folder: Path, log: Path) -> Path:
    """Create a virtual environment with this one's packages, whose processes count; return its interpreter.

    A decoding process has no PYTHONPATH, so only its interpreter can load the recorder.
    """
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    recorder = _RECORDER.format(root=str(ROOT), log=str(log), folders=FOLDERS, layout=_ENTRY.format, entries=_ENTRIES)
    (site / "_recorder.py").write_text(recorder)
    ours = [f"import site; site.addsitedir({path!r})" for path in sys.path if path.endswith("site-packages")]
    (site / "recorder.pth").write_text("\n".join(["import _recorder", *ours]))
    return folder / "bin" / "python"


def _reelabel(folder: Path, python: Path, *arguments: str) -> None:
    settings = {
        "REELABEL_HOME": str(folder / "home"),
        "REELABEL_MODEL_NAME": str(TINY_MODEL),
        "REELABEL_MODEL_PYTHON": str(ROOT / ".venv-engine/bin/python"),  # not next to the counting interpreter
        "REELABEL_REPORT_AT_END": "false",
    }
    command = [str(python), "-m", "flows.cli.main", *arguments]
    subprocess.run(command, check=True, env=os.environ | settings, cwd=folder)  # noqa: S603 - our own command


def _read(log: Path) -> dict[str, Calls]:
    calls: dict[str, Calls] = {}
    for file in log.iterdir():
        for count, last_s, name in _ENTRY.iter_unpack(file.read_bytes()):
            if not name.strip(b"\0"):
                break
            before = calls.get(place := name.rstrip(b"\0").decode(), Calls(0, 0.0))
            calls[place] = Calls(before.count + count, max(before.last_s, last_s))
    return calls


def on_the_way(fewer: dict[str, Calls], more: dict[str, Calls], further: int) -> list[tuple[str, list[str]]]:
    """Return the files with a function that is called for each further job, in the order of the last job's calls."""
    least = further * (1 - _LOST)
    nothing = Calls(0, 0.0)
    grows = {place: calls for place, calls in more.items() if calls.count - fewer.get(place, nothing).count >= least}
    files = {
        file: sorted(places, key=lambda place: grows[place].last_s)
        for file, places in groupby(sorted(grows), key=lambda place: place.partition(":")[0])
    }
    in_order = sorted(files, key=lambda file: grows[files[file][0]].last_s)
    return [(file, [place.partition(":")[2] for place in files[file]]) for file in in_order]


def follow_jobs() -> tuple[list[tuple[str, list[str]]], int]:
    """Classify twice on separate services; return the files on a job's way, and the number of files called at all."""
    with TemporaryDirectory(prefix="reelabel-") as name:
        folder = Path(name)
        try:
            _reelabel(folder, Path(sys.executable), "up")
            fewer, more = (count_calls(folder, videos) for videos in (VIDEOS, 2 * VIDEOS))
        finally:
            _reelabel(folder, Path(sys.executable), "down")
    return on_the_way(fewer, more, VIDEOS), len({place.partition(":")[0] for place in more})


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the services are stopped
    way, called = follow_jobs()
    for file, functions in way:
        print(f"{file}: {', '.join(functions)}")  # noqa: T201
    for room, count in sorted(Counter(str(Path(file).parent) for file, _ in way).items()):
        print(f"{count:4} {room}")  # noqa: T201
    print(f"{called:4} files with a function that a run calls")  # noqa: T201
    print(f"{len(way):4} files on a job's way")  # noqa: T201


if __name__ == "__main__":
    main()
