"""`reelabel demo`: the main job, as production would run it, on clips made here."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from flows.commands.opened import services
from flows.commands.run import submit_and_watch
from flows.commands.scheduler import prefect_ready
from flows.commands.summary import print_summary
from flows.commands.terminal import OUT, say
from infra.embedded import ServiceName, login_path, status
from infra.objects import ObjectStore
from infra.uri import absolute_uri
from tasks.demo.clips import make_demo
from tasks.results.schema import prepare_database

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from infra.settings import Settings

_SEED = 30_000  # neither the training's clips nor the evaluation's


def run_demo(*, model: str | None, clips: int, keep: bool) -> int:
    """Run the whole demo; return the exit code."""

    def make(folder: Path, uri_prefix: str) -> pl.DataFrame:
        return make_demo(folder, seed=_SEED, clips=clips, uri_prefix=uri_prefix)

    with services(*ServiceName, keep=keep, own=True) as started, prefect_ready(started):
        code = classify_clips(started, make, dataset="demo", model=model)
    if not any(service.is_running for service in status(started.home)):
        say("Stopped what was started; `reelabel up` brings the Prefect pages back.")
    else:
        say(f"Prefect's pages ask for a login: it is what stands in {login_path(started.home)}.")
    return code


def classify_clips(
    settings: Settings, make: Callable[[Path, str], pl.DataFrame], *, dataset: str, model: str | None
) -> int:
    """Make clips, upload and classify them, and print the summary.

    Args:
        settings: Settings of running services, inside `prefect_ready`.
        make: Writes clips and `manifest.parquet` to a folder, with `video_uri` below a prefix; returns the manifest.
        dataset: Dataset of the jobs, and their folder on the store.
        model: Model folder or hub name; None is the configured one.

    Returns:
        The exit code of the run.
    """
    prepare_database(settings.database)
    manifest = _upload_clips(settings, make, dataset)
    from flows.deploy import deploy_flows  # noqa: PLC0415 - see prefect_ready

    say(f"Deployed {', '.join(deploy_flows(settings))}.")
    # Forced: a second demo shows the frame cache and the engine at work again, not "nothing to do".
    parameters = {
        "manifest": manifest,
        "dataset": dataset,
        "model": absolute_uri(model) if model and Path(model).expanduser().is_dir() else model,
        "force": True,
    }
    run_id = submit_and_watch("classify/on-demand", parameters, settings)
    return print_summary(settings, run_id)


def _upload_clips(settings: Settings, make: Callable[[Path, str], pl.DataFrame], dataset: str) -> str:
    """Make clips and their manifest, and upload both; return the URI of the manifest."""
    assert settings.store.uri is not None
    objects = ObjectStore(settings.store, settings.web)
    root = f"{settings.store.uri.rstrip('/')}/{dataset}"
    with TemporaryDirectory(prefix="reelabel-") as folder, OUT.status("Making clips"):
        jobs = make(Path(folder), root)
        for path in sorted(Path(folder).iterdir()):
            objects.replace(f"{root}/{path.name}", path.read_bytes())
    videos = jobs["video_uri"].n_unique()
    say(f"Made {videos} clips and {len(jobs)} jobs, and put them on {root}.")
    return f"{root}/manifest.parquet"
