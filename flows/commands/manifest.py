"""`reelabel manifest`."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from flows.commands.opened import services
from flows.commands.target import require_folder
from flows.commands.terminal import say
from infra.embedded import ServiceName
from infra.errors import ManifestError
from infra.objects import ObjectStore
from infra.uri import scheme_of
from infra.wording import counted
from tasks.manifest.check import check_manifest
from tasks.manifest.import_csv import foreign_columns, import_csv
from tasks.manifest.import_openai import import_openai_batch
from tasks.manifest.read import read_jobs


def check(manifest: str) -> None:
    """Check a manifest.

    Raises:
        ManifestError: Every fault.
    """
    with services(*([ServiceName.S3] if manifest.startswith("s3://") else [])) as settings:
        jobs = read_jobs(manifest, ObjectStore(settings.store, settings.web))
    videos = len({job.video_uri for job in jobs})
    say(f"{manifest} is good: {counted(len(jobs), 'job')} on {counted(videos, 'video')}.")


def import_manifest(source: str, target: str) -> None:
    """Convert a file and check what came out; nothing is written where it is faulty.

    Raises:
        ManifestError: The source cannot be read, or is no good manifest.
        ConfigurationError: There is no folder for the target.
    """
    if scheme_of(target) is None:
        require_folder(target)
    read = import_openai_batch if source.endswith((".jsonl", ".ndjson")) else import_csv
    frame = read(Path(source))
    dropped = foreign_columns(Path(source)) if read is import_csv else []
    if dropped:
        say(f"Dropped what no manifest has: {', '.join(dropped)}.")
    faults = check_manifest(frame)
    if faults:
        raise ManifestError(f"{source} is no good manifest:\n" + "\n".join(f"  - {fault}" for fault in faults))
    with services(*([ServiceName.S3] if target.startswith("s3://") else [])) as settings:
        parquet = BytesIO()
        frame.write_parquet(parquet)
        ObjectStore(settings.store, settings.web).replace(target, parquet.getvalue())
    say(f"Wrote {counted(len(frame), 'job')} to {target}.")
