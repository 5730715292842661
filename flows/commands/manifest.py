"""`reelabel manifest`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from infra.errors import ManifestError
from infra.objects import ObjectStore
from infra.settings import load_settings
from tasks.manifest.check import check_manifest
from tasks.manifest.import_csv import import_csv
from tasks.manifest.import_openai import import_openai_batch
from tasks.manifest.read import read_jobs

_CONSOLE = Console()


def check(manifest: str) -> None:
    """Check a manifest.

    Raises:
        ManifestError: Every fault.
    """
    settings = load_settings()
    jobs = read_jobs(manifest, ObjectStore(settings.store, settings.web))
    videos = len({job.video_uri for job in jobs})
    _CONSOLE.print(f"{manifest} is good: {len(jobs):,} jobs on {videos:,} videos.", soft_wrap=True)


def import_manifest(source: str, target: str) -> None:
    """Convert a file and check what came out; nothing is written where it is faulty.

    Raises:
        ManifestError: The source cannot be read, or is no good manifest.
    """
    read = import_openai_batch if source.endswith((".jsonl", ".ndjson")) else import_csv
    frame = read(Path(source))
    faults = check_manifest(frame)
    if faults:
        raise ManifestError(f"{source} is no good manifest:\n" + "\n".join(f"  - {fault}" for fault in faults))
    frame.write_parquet(target)
    _CONSOLE.print(f"Wrote {len(frame):,} jobs to {target}.", soft_wrap=True)
