"""`reelabel demo`: a complete job on generated clips, run as in production."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import OUT, print_line
from flows.cli.context import own_settings, ready_to_run
from flows.cli.options import example
from infra.embedded import STORE_URI, ServiceName, login_path, start, status
from infra.program import command
from reelabel.sources.object_info import absolute_uri, expand_home
from reelabel.sources.object_store import ObjectStore
from tasks.model.identity import TINY_ENCODER, TINY_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    import polars as pl

    from infra.settings import Settings

_SEED = 30_000  # distinct from the clips used for training and evaluation
VIDEOS, BANK = "videos.parquet", "shapes.txt"


@example("reelabel demo --keep")
def demo(
    model: Annotated[
        str | None, typer.Option(help="Model folder or Hugging Face name. Default: the tiny demo model.")
    ] = None,
    clips: Annotated[int, typer.Option(min=24, max=1000, help="Clips to generate, with three jobs each.")] = 32,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the services running afterwards.")] = False,
) -> None:
    """Run a complete example on generated clips: services, deployment, answers, summary."""

    def make(folder: Path, uri_prefix: str) -> pl.DataFrame:
        from tasks.demo.clips import make_demo  # noqa: PLC0415

        return make_demo(folder, seed=_SEED, clips=clips, uri_prefix=uri_prefix)

    code = classify_clips(make, dataset="demo", model=model, keep=keep, describe=True)
    home = own_settings().home
    if not any(service.is_running for service in status(home)):
        print_line(f"Stopped the services; `{command('up')}` starts them again, with the Prefect UI.")
    else:
        print_line(f"The login for the Prefect UI is in {login_path(home)}.")
        print_line(f"Search the clips: {command('search', 'a red circle', model=TINY_ENCODER, sheet='found.png')}")
    raise typer.Exit(code)


def classify_clips(
    make: Callable[[Path, str], pl.DataFrame],
    *,
    dataset: str,
    model: str | None,
    keep: bool,
    then: Callable[[Settings], int] = lambda _settings: 0,
    describe: bool = False,
) -> int:
    """Classify clips through a deployment of embedded services; return the highest exit code.

    `make` writes clips and `manifest.parquet`, with `video_uri` below a prefix, to a folder, and returns the manifest.
    `then` gets the settings while the services run. With `describe`, another deployment describes the clips.
    """
    root, model = f"{STORE_URI}/{dataset}", model or str(TINY_MODEL)
    parameters: dict[str, object] = {
        "manifest": f"{root}/manifest.parquet",
        "dataset": dataset,
        "overrides": {"model": absolute_uri(model) if expand_home(model).is_dir() else model},
        # A second demo should run again, not print "nothing to do".
        "force": True,
    }
    with TemporaryDirectory(prefix="reelabel-") as folder, ThreadPoolExecutor(2, "demo") as background:
        clips = background.submit(make, Path(folder), root)
        with ready_to_run("flows.schedule.deploy", keep=keep, own=True) as started:
            with OUT.status("Making clips"):
                jobs = clips.result()
            if describe:
                _make_videos(Path(folder), jobs)
            code = _run(started, parameters, Path(folder), jobs, background, describe=describe)
            return max(code, then(started))


def _make_videos(folder: Path, jobs: pl.DataFrame) -> None:
    """Write a manifest of the clips without questions, and a bank of their possible contents."""
    from tasks.demo.captions import SHAPE_BANK  # noqa: PLC0415

    stems = jobs["video_uri"].unique(maintain_order=True)
    names = stems.str.extract(r"([^/]+)\.[^/.]+$").alias("job_id")
    stems.to_frame().insert_column(0, names).write_parquet(folder / VIDEOS)
    (folder / BANK).write_text("".join(f"{text}\n" for text in SHAPE_BANK), encoding="utf-8")


def _run(
    settings: Settings,
    parameters: dict[str, object],
    folder: Path,
    jobs: pl.DataFrame,
    background: Executor,
    *,
    describe: bool,
) -> int:
    """Run the deployments with a worker, which starts while the flows are deployed; return the summaries' exit code."""
    from flows.cli.runs.run import submit, watch_submitted  # noqa: PLC0415
    from flows.cli.runs.summary import print_summary  # noqa: PLC0415
    from flows.schedule.deploy import deploy_flows  # noqa: PLC0415 - see prefect_ready

    worker = background.submit(start, own_settings(), wanted=frozenset(ServiceName))
    with OUT.status("Uploading the clips, deploying the flows and starting a worker"):
        root = str(parameters["manifest"]).rpartition("/")[0]
        objects = ObjectStore(settings.store, settings.web)
        for path in sorted(folder.iterdir()):
            objects.replace(f"{root}/{path.name}", path.read_bytes())
        print_line(f"Generated {jobs['video_uri'].n_unique()} clips and {len(jobs)} jobs in {root}.")
        print_line(f"Deployed {', '.join(plan.name for plan in deploy_flows(settings))}.")
        run_ids = [submit("classify/on-demand", parameters)]
        if describe:
            described = {"manifest": f"{root}/{VIDEOS}", "dataset": parameters["dataset"], "force": True}
            banks = dict.fromkeys(("tags", "captions"), f"{root}/{BANK}")  # not those of places and activities
            options = banks | {"model": str(TINY_ENCODER)}
            run_ids.append(submit("describe/on-demand", described | {"options": options}))
        worker.result()
    for run_id in run_ids:
        watch_submitted(run_id, settings)
    code = max(print_summary(settings, run_id) for run_id in run_ids)
    if describe:
        for what, run_id in zip(("Labels", "Descriptions"), run_ids, strict=True):
            print_line(f"{what}: {command('results', str(run_id)[:8])}")
    return code
