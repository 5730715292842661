"""`reelabel demo`: the main job, as production would run it, on clips made here."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console

from flows.commands.run import print_summary, submit_and_watch
from infra.embedded import ServiceName, export, running
from infra.objects import ObjectStore
from infra.settings import load_settings
from sql.migrate import upgrade
from tasks.demo.clips import make_demo

if TYPE_CHECKING:
    from infra.settings import Settings

_CONSOLE = Console()
_SEED = 20_000


def run_demo(*, model: str | None, clips: int, keep: bool) -> int:
    """Run the whole demo; gives the exit code."""
    settings = load_settings()
    with (
        _CONSOLE.status("Starting Postgres, S3, Prefect and a worker"),
        running(settings, wanted=frozenset(ServiceName), keep=keep) as started,
    ):
        os.environ.update(export(started))
        assert started.database.url is not None
        upgrade(started.database.url.get_secret_value())
        manifest = _upload_clips(started, clips)
        from flows.deploy import deploy_flows  # noqa: PLC0415 - Prefect reads its environment when it is imported

        names = deploy_flows(started)
        _CONSOLE.print(f"Deployed {', '.join(names)}.")
        parameters = {"manifest": manifest, "dataset": "demo", "model": model}
        run_id = submit_and_watch("classify/on-demand", parameters, started)
        return print_summary(started, run_id, manifest=manifest)


def _upload_clips(settings: Settings, clips: int) -> str:
    assert settings.store.uri is not None
    objects = ObjectStore(settings.store)
    root = settings.store.uri.rstrip("/") + "/demo"
    with TemporaryDirectory(prefix="reelabel-") as folder:
        manifest = make_demo(Path(folder), seed=_SEED, clips=clips, uri_prefix=root)
        for path in sorted(Path(folder).iterdir()):
            objects.replace(f"{root}/{path.name}", path.read_bytes())
    _CONSOLE.print(f"Made {clips} clips and {len(manifest)} jobs, and put them on {root}.", soft_wrap=True)
    return f"{root}/manifest.parquet"
